"""The picture and the table of the architecture page are those of the import law, and every package is in both."""

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


@pytest.fixture(scope="module")
def page(drawing):
    return drawing.PAGE.read_text(encoding="utf-8")


def test_the_page_is_that_of_the_import_law(drawing, page):
    assert drawing.faults(page, drawing.layers()) == []


def test_every_package_is_in_the_import_law(drawing):
    """What the law does not name it does not hold to anything."""
    packages = {path.parent.name for path in (ROOT / "src" / "shardwise").glob("*/__init__.py")}
    modules = {path.stem for path in (ROOT / "src" / "shardwise").glob("*.py")} - {"__init__", "__main__"}
    assert {name for names in drawing.layers() for name in names} == packages | modules


def test_files_named_on_the_page_are_there(page):
    named = re.findall(r"`(\w+(?:/\w+)*\.py)`", page)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / "src" / "shardwise" / name).is_file()] == []


def test_a_moved_renamed_or_new_package_is_found(drawing, page):
    found = drawing.layers()
    assert drawing.faults(page, [found[1], found[0], *found[2:]]) == [
        "the rows of the page are not in the order of the law"
    ]
    assert drawing.faults(page, [*found, frozenset({"attic"})]) == [
        "attic: a layer of the import law, no row of the page"
    ]
    assert len(drawing.faults(page.replace("| `work` |", "| `labour` |"), found)) == 3


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name not in ("decisions", "accuracy")]
    names = [str(path.relative_to(ROOT / "docs")) for path in pages if path.name != "README.md"]
    assert [name for name in names if f"]({name})" not in index] == []
