"""Draws the picture of docs/architecture.md: the layers of the import law in pyproject.toml, in the page's words.

The law lists packages from the last that data reaches to the first; the page and its picture begin with the first.
Where the page's table and the law differ, the difference is printed and the exit code is 1.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
MARKS = ("<!-- picture -->\n", "<!-- end -->\n")

Layer = frozenset[str]
Group = tuple[str, list[tuple[list[str], str]]]


def layers() -> list[Layer]:
    """Packages of each layer, in the direction of the data."""
    law = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (stated,) = [contract["layers"] for contract in law if contract["type"] == "layers"]
    return [frozenset(re.findall(r"shardwise\.(\w+)", line)) for line in reversed(stated)]


def groups(text: str) -> list[Group]:
    """The page's table: under each heading the layers, their packages and what they hand on."""
    found: list[Group] = []
    for cell, gives in re.findall(r"^\| (\*\*.+?\*\*|`\w+`(?:, `\w+`)*) \| (.*?) \|", text, re.MULTILINE):
        if cell.startswith("**"):
            found.append((cell.strip("*"), []))
        else:
            found[-1][1].append((re.findall(r"\w+", cell), gives))
    return found


def picture(found: list[Group]) -> str:
    """A Mermaid graph: a column for each group, a box for each layer, arrows along the data."""
    lines = ["```mermaid", "flowchart LR"]
    for number, (title, rows) in enumerate(found):
        boxes = [f"g{number}l{row}" for row in range(len(rows))]
        lines += [f'  subgraph g{number}["{title}"]', "    direction TB"]
        lines += [
            f'    {box}["<b>{" · ".join(n)}</b><br/>{gives}"]' for box, (n, gives) in zip(boxes, rows, strict=True)
        ]
        lines += [f"    {' --> '.join(boxes)}", "  end"]
    lines += ["  " + " --> ".join(f"g{number}" for number in range(len(found))), "```"]
    return "\n".join(lines) + "\n"


def faults(text: str, law: list[Layer]) -> list[str]:
    """What the page says otherwise than the law."""
    told = [frozenset(names) for _, rows in groups(text) for names, _ in rows]
    wrong = [
        f"{', '.join(sorted(one))}: a layer of the import law, no row of the page" for one in law if one not in told
    ]
    wrong += [f"{', '.join(sorted(one))}: a row of the page, no layer of the law" for one in told if one not in law]
    if not wrong and told != law:
        wrong.append("the rows of the page are not in the order of the law")
    if MARKS[0] + picture(groups(text)) + MARKS[1] not in text:
        wrong.append("the picture is not of the table: run `make picture`")
    return wrong


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1])
    text = re.sub(pattern, lambda _: MARKS[0] + picture(groups(text)) + MARKS[1], text, flags=re.DOTALL)
    PAGE.write_text(text, encoding="utf-8")
    wrong = faults(text, layers())
    print("\n".join(wrong) or f"wrote {PAGE.relative_to(ROOT)}", file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
