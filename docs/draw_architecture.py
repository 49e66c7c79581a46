"""Writes the picture and the table of docs/architecture.md: the layers of the import law in pyproject.toml, every
package with the first sentence of its own documentation. Nothing there is typed twice.

The law lists packages from the last that data reaches to the first; the page begins with the first.
"""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "shardwise"
PAGE = ROOT / "docs" / "architecture.md"
MARKS = ("<!-- layers -->\n", "<!-- end -->\n")
COLUMNS = {
    "units": "Ground", "spec": "What is stated", "cost": "What it takes", "plan": "What is best, and is it true",
    "charts": "What is shown and run",
}  # fmt: skip
"""the package with which a column of the picture begins"""

Layers = list[list[str]]


def layers() -> Layers:
    """Packages of each layer, in the direction of the data."""
    law = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (stated,) = [contract["layers"] for contract in law if contract["type"] == "layers"]
    return [re.findall(r"shardwise\.(\w+)", line) for line in reversed(stated)]


def sentence(package: str) -> str:
    """The first sentence of a package's documentation, without its full stop."""
    path = SOURCE / package / "__init__.py" if (SOURCE / package).is_dir() else SOURCE / f"{package}.py"
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split())
    if not text:
        raise ValueError(f"{path.relative_to(ROOT)}: has no documentation; begin with a sentence on what it is for")
    return re.split(r"\.(?: |$)", text)[0].replace("<->", "↔").replace("->", "→")


def columns(found: Layers) -> list[tuple[str, Layers]]:
    """The layers under the headings of the picture."""
    known = {name for names in found for name in names}
    for name in COLUMNS:
        if name not in known:
            raise ValueError(f"COLUMNS: {name!r} is no package of the import law; name one that is")
    cut: list[tuple[str, Layers]] = []
    for names in found:
        title = next((COLUMNS[name] for name in names if name in COLUMNS), None)
        if title is not None:
            cut.append((title, []))
        cut[-1][1].append(names)
    return cut


def picture(found: Layers) -> str:
    """A Mermaid graph: a column for each heading, a box for each layer, arrows along the data."""
    lines, cut = ["```mermaid", "flowchart LR"], columns(found)
    for number, (title, rows) in enumerate(cut):
        boxes = [f"c{number}r{row}" for row in range(len(rows))]
        lines += [f'  subgraph c{number}["{title}"]', "    direction TB"]
        lines += [f'    {box}["{_label(names)}"]' for box, names in zip(boxes, rows, strict=True)]
        lines += [f"    {' --> '.join(boxes)}", "  end"]
    lines += ["  " + " --> ".join(f"c{number}" for number in range(len(cut))), "```"]
    return "\n".join(lines) + "\n"


def _label(names: list[str]) -> str:
    """Names alone where a layer has several; else the sentence up to its colon."""
    return " · ".join(names) if len(names) > 1 else f"<b>{names[0]}</b><br/>{sentence(names[0]).split(':')[0]}"


def section(found: Layers) -> str:
    """What stands between the marks of the page."""
    rows = [f"| `{name}` | {sentence(name)} |" for names in found for name in names]
    return "\n".join([picture(found), "| package | |", "| --- | --- |", *rows]) + "\n"


def main() -> None:
    pattern = re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1])
    text, fresh = PAGE.read_text(encoding="utf-8"), MARKS[0] + section(layers()) + MARKS[1]
    PAGE.write_text(re.sub(pattern, lambda _: fresh, text, flags=re.DOTALL), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
