"""The readers behind benchmarks/house.py find what they look for, past re-exports and other names."""

import sys
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from _call_graph import calls_of, modules_of, way
from _house_sizes import (
    budget_of,
    files_naming,
    files_per_plan_column,
    kernel_laws_gap_max,
    lines_by_package,
    literal_axes,
    over_budget,
    printing_verbs,
    settings_single_use,
    trees_of,
    types_answer_by_hand,
    types_message,
    types_question,
)
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


def test_no_package_has_more_lines_than_its_budget():
    budgets = tomllib.loads((Path(__file__).resolve().parents[1] / "house.toml").read_text(encoding="utf-8"))
    assert over_budget(lines_by_package(), budgets) == []
    assert all(entry["reason"].strip() for entry in budgets.values() if "reason" in entry)


def test_growth_is_named_with_its_cure():
    budgets = {"plan": {"lines": 100}, "gone": {"lines": 1}}
    new, gone, grown = over_budget({"plan": 101, "fresh": 5}, budgets)
    assert (new.split(":")[0], gone.split(":")[0], grown.split(":")[0]) == ("fresh", "gone", "plan")
    assert all(word in grown for word in ("101", "100", "shrink", "reason"))
    assert over_budget({"plan": 100, "gone": 1}, budgets) == []


def test_a_budget_leaves_two_per_cent():
    budgets = tomllib.loads(budget_of({"plan": 1000, "modules": 50}))
    assert budgets == {"plan": {"lines": 1020}, "modules": {"lines": 51}}


HOLD_A_QUESTION = {
    "Question": "the question itself",
    "Training": "model, job and program without a machine: what a Case is made of",
    "Work": "a Training counted, with the policies beside it",
    "Task": "what a rank of a run gets over the process boundary",
    "PosttrainSpace": "a step of post-training: a job of rollouts, besides the trainer's own Case",
    "Context": "what a layer of the runtime reads, after the Task is checked",
    "Operation": "a whole run with its failures",
    "MeasuredCase": "a row of a table, interpreted",
    "PublishedLayout": "a file of the catalog, as it is published",
    "Found": "what a launch file says, before it is completed",
}
SAME_LETTERS = {
    "spec/policy.py": "the declaration",
    "spec/message.py": "a Literal, which must be written out",
    "question/studies/place.py": "in the order in which groups are listed",
    "run/auto/plan.py": "as the ranks of a user's own program are numbered",
}


def test_whoever_holds_a_question_has_a_reason():
    assert types_question(trees_of()) == sorted(HOLD_A_QUESTION)


def test_no_answer_is_written_key_by_key():
    assert types_answer_by_hand(trees_of()) == []


def test_verbs_print_through_one_renderer():
    """Besides answers: a JSON Schema, and facts of a node that are a file."""
    assert printing_verbs() == ["preflight: print_text", "schema: print_json"]


def test_axes_are_declared_once():
    assert {line.split(":")[0] for line in literal_axes(trees_of())} == set(SAME_LETTERS)


def test_the_laws_see_what_breaks_them(tmp_path):
    verbs = tmp_path / "show" / "cli"
    verbs.mkdir(parents=True)
    (verbs / "bad.py").write_text(
        "import sys\nfrom shardwise.show.cli._output import answered, print_table\n"
        "print(1)\nprint(2, file=sys.stderr)\n"
        "SPLIT = ('tp', 'pp', 'cp')\n"
    )
    assert printing_verbs(tmp_path) == ["bad: print_table", "bad: print"]
    assert literal_axes(trees_of(tmp_path), tmp_path) == ["show/cli/bad.py: tp, pp, cp"]


SIZED = {
    "plan/rows.py": "from typing import Any\nclass Sent:\n    op: str\n    wire_bytes: float\n"
    "class Asked:\n    model: int\n    cluster: int\n    job: int\n"
    "class Echo:\n    model: str\n    cluster: 'str'\n    policy: int\nclass Pair:\n    model: int\n    job: int\n",
    "show/_plan_page.py": "from typing import Any\nclass Ranking: ...\ndef entry(x) -> dict[str, Any]:\n"
    "    return {'policy': x.policy, 'step_s': 1, 'peak_bytes': 2, 'tokens_per_s_per_gpu': 3}\n"
    "def one(x, cp) -> int: ...\n",
    "show/other.py": "# cp\ndef two(cpu) -> str:\n    return 'a cp inside'\n",
}


def test_ideas_are_counted_by_what_they_declare(tmp_path):
    for name, text in SIZED.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "catalog" / "programs").mkdir(parents=True)
    for name in ("a", "b"):
        text = f"name = 'x'\n[kernels]\nboth = 1\n[releases.old.kernels]\n{name} = 2\n"
        (tmp_path / "catalog" / "programs" / f"{name}.toml").write_text(text)
    trees = trees_of(tmp_path)
    assert types_message(trees) == ["Sent"]
    assert types_question(trees) == ["Asked"]
    assert types_answer_by_hand(trees, tmp_path) == ["_plan_page.entry"]
    assert files_naming(trees, "cp") == 1
    assert files_per_plan_column(tmp_path) == ["show/_plan_page.py"]
    assert settings_single_use(tmp_path) == ["kernels.a", "kernels.b"]
    assert lines_by_package(tmp_path) == {"plan": 15, "show": 8}


def test_two_kernel_laws_are_within_a_tenth():
    pytest.importorskip("torch", reason="torch is not installed: nothing is traced")
    assert 0.0 <= kernel_laws_gap_max() < 0.1
