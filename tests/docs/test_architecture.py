"""The picture and the table of the architecture page are those of the import law, and every package is in them."""

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


def test_every_package_is_in_the_import_law_and_in_the_picture_once(drawing):
    """What the law does not name it does not hold to anything."""
    packages = {path.parent.name for path in drawing.SOURCE.glob("*/__init__.py")}
    modules = {path.stem for path in drawing.SOURCE.glob("*.py")} - {"__init__", "__main__"}
    named = [name for names in drawing.layers() for name in names]
    assert sorted(named) == sorted(packages | modules)
    boxes = re.findall(r'c\d+r\d+\["(.*)"\]', drawing.picture(drawing.layers()))
    shown = [
        name
        for box in boxes
        for name in re.findall(r"\w+", box.split("<br/>")[0].replace("<b>", " ").replace("</b>", ""))
    ]
    assert shown == named


def test_a_column_that_begins_with_no_package_is_an_error(drawing):
    with pytest.raises(ValueError, match="'units' is no package"):
        drawing.columns([["attic"]])


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name not in ("decisions", "accuracy")]
    names = [str(path.relative_to(ROOT / "docs")) for path in pages if path.name != "README.md"]
    assert [name for name in names if f"]({name})" not in index] == []
