"""The table of the architecture page is that of the import law, and every package is in it."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def drawing():
    spec = importlib.util.spec_from_file_location("draw_architecture", ROOT / "docs" / "draw_architecture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_that_of_the_import_law(drawing):
    fresh = drawing.MARKS[0] + drawing.section(drawing.layers()) + drawing.MARKS[1]
    assert fresh in drawing.PAGE.read_text(encoding="utf-8"), "docs/architecture.md is old: run `make picture`"


def test_a_moved_package_changes_the_page(drawing):
    found = drawing.layers()
    moved = [found[0], found[2], found[1], *found[3:]]
    assert drawing.section(moved) != drawing.section(found)


def test_every_package_is_in_the_import_law_and_in_the_table_once(drawing):
    """The law does not hold a package that it does not name."""
    packages = {path.parent.name for path in drawing.SOURCE.glob("*/__init__.py")}
    modules = {path.stem for path in drawing.SOURCE.glob("*.py")} - {"__init__", "__main__"}
    order = drawing.layers()
    assert sorted(name for names in order for name in names) == sorted(packages | modules)
    rows = re.findall(r"^\| (\d+) `(\w+)` \|", drawing.section(order), re.MULTILINE)
    assert rows == [(str(number), name) for number, names in enumerate(order, start=1) for name in names]
    parts = re.findall(r"^\| · `([\w/]+)` \|", drawing.section(order), re.MULTILINE)
    assert sorted(parts) == sorted(
        str(path.parent.relative_to(drawing.SOURCE)) for path in drawing.SOURCE.glob("*/*/__init__.py")
    )


def test_every_group_heads_its_first_package(drawing):
    rows = drawing.section(drawing.layers()).splitlines()
    heads = {row.split("**")[1]: rows[place + 1].split("`")[1] for place, row in enumerate(rows) if "**" in row}
    assert heads == {title: name for name, title in drawing.GROUPS.items()}


def test_the_reader_is_sent_to_files_that_exist(drawing):
    cells = re.findall(r"`([\w/]+(?:\.py|/))`", drawing.PAGE.read_text(encoding="utf-8").split("## Laws")[0])
    assert len(cells) >= 10
    assert [path for path in cells if not (drawing.SOURCE / path).exists()] == []


def test_a_group_that_begins_with_an_unknown_package_is_an_error(drawing):
    with pytest.raises(ValueError, match="'units' is not a package"):
        drawing.section([["attic"]])


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name not in ("decisions", "accuracy")]
    names = [str(path.relative_to(ROOT / "docs")) for path in pages if path.name != "README.md"]
    assert [name for name in names if f"]({name})" not in index] == []
