"""Writes the table of packages in docs/architecture.md: the layers of the import law in pyproject.toml, every room and
its packages with the first sentence of their own documentation.

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
GROUPS = {
    "units": "Foundations", "catalog": "Inputs", "cost": "Work and cost", "measured": "Comparison and search",
    "question": "Questions, answers and execution",
}  # fmt: skip
"""the package with which a group of the table begins"""

ENOUGH = 4
"""words before a colon that say what a package is for"""

Layers = list[list[str]]


def layers() -> Layers:
    """Packages of each layer, in the direction of the data."""
    law = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    stated = next(contract["layers"] for contract in law if contract["type"] == "layers")
    return [re.findall(r"shardwise\.(\w+)", line) for line in reversed(stated)]


def sentence(package: str) -> str:
    """The first sentence of a package's documentation, up to its colon where that part says enough."""
    path = SOURCE / package / "__init__.py" if (SOURCE / package).is_dir() else SOURCE / f"{package}.py"
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split())
    if not text:
        raise ValueError(f"{path.relative_to(ROOT)}: has no documentation; begin with a sentence on what it is for")
    whole = re.split(r"\.(?: |$)", text)[0].replace("<->", "↔").replace("->", "→")
    head = whole.split(": ")[0]
    return head if len(head.split()) >= ENOUGH else whole


def parts(room: str) -> list[str]:
    """Packages of a room."""
    return sorted(path.parent.name for path in (SOURCE / room).glob("*/__init__.py"))


def section(order: Layers) -> str:
    """The table between the marks of the page: a number for each layer, a heading above the first layer of a group."""
    known = {name for names in order for name in names}
    for name in GROUPS:
        if name not in known:
            raise ValueError(f"GROUPS: {name!r} is not a package of the import law; name one that is")
    rows = ["| package | |", "| --- | --- |"]
    for number, names in enumerate(order, start=1):
        rows += [f"| **{GROUPS[name]}** | |" for name in names if name in GROUPS]
        for name in names:
            rows += [f"| {number} `{name}` | {sentence(name)} |"]
            rows += [f"| · `{name}/{part}` | {sentence(f'{name}/{part}')} |" for part in parts(name)]
    return "\n".join(rows) + "\n"


def main() -> None:
    pattern = re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1])
    text, fresh = PAGE.read_text(encoding="utf-8"), MARKS[0] + section(layers()) + MARKS[1]
    PAGE.write_text(re.sub(pattern, lambda _: fresh, text, flags=re.DOTALL), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
