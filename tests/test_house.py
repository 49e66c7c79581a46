"""The readers behind benchmarks/house.py find what they look for, past re-exports and other names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from _call_graph import calls_of, modules_of, way
from house import SOURCE, duplicate_class_names, signatures_of_five

FILES = {
    "room/__init__.py": "from pack.room import inner\nfrom pack.room.inner import run as start\n"
    "def own(): return inner\n",
    "room/inner.py": "class Case: ...\nclass _Case: ...\ndef run(): ...\n",
    "show.py": "from pack import room\nfrom pack.room import start as go\n"
    "class Case: ...\nclass _Case: ...\ndef page(): return part()\ndef part(): return go()\n"
    "def other(): return room.start()\ndef alone(): return 1\n",
}


def package(folder: Path) -> dict:
    for name, text in {"__init__.py": "", **FILES}.items():
        (folder / "pack" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "pack" / name).write_text(text)
    return modules_of(folder / "pack")


def test_a_call_is_followed_to_where_it_is_defined(tmp_path):
    graph, end = calls_of(package(tmp_path)), {"pack.room.inner.run"}
    assert way(graph, {"pack.show.page"}, end) == ["pack.show.page", "pack.show.part", "pack.room.inner.run"]
    assert way(graph, {"pack.show.other"}, end) == ["pack.show.other", "pack.room.inner.run"]
    assert way(graph, {"pack.show.alone"}, end) == []
    assert way(graph, {"pack.room.own"}, end) == [], "a module that its package imports is no call"


def test_public_classes_of_one_name_are_counted(tmp_path):
    assert duplicate_class_names(package(tmp_path)) == {"Case": 2}


def test_no_two_public_classes_have_one_name():
    assert duplicate_class_names(modules_of(SOURCE)) == {}


def test_what_a_case_holds_is_not_handed_on_apart(tmp_path):
    given = "model: Model, cluster: Cluster, job: Job | None, stack: Stack"
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text(
        f"def four({given}): ...\nclass Of:\n    def five(self, {given}, *, policies: list[Policies]): ...\n"
    )
    assert signatures_of_five(modules_of(tmp_path / "pack")) == ["pack.five"]
    assert signatures_of_five(modules_of(SOURCE)) == []
