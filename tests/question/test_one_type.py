"""What a question is made of is put together in one place: classes elsewhere that hold it again are counted."""

import ast
from pathlib import Path

import pytest

import shardwise

SOURCE = Path(shardwise.__file__).parent
PARTS = {"model", "cluster", "job", "policy", "stack", "software"}
MOST = 2
"""parts of a question that a class may hold without being one"""
QUESTIONS = {"work/case.py Training", "question/question.py Question"}
ANSWERS = {"report/report.py Report", "report/fabric_report.py FabricReport"}
"""they name what was asked"""
OTHERS = {
    "programs/formats/_contract.py Found", "step/operate/run.py Operation", "run/runtime/net/context.py Context",
    "run/runtime/train/task.py Task", "shardwise_lab/jobs.py LabJob", "measured/validate/interpret.py MeasuredCase",
    "measured/validate/layouts.py PublishedLayout", "work/__init__.py Work", "plan/posttrain.py PosttrainSpace",
}  # fmt: skip
"""this list only gets shorter"""


def holders(text: str) -> set[str]:
    """Classes that declare more than MOST of the parts as fields of their own."""
    found = set()
    for each in ast.walk(ast.parse(text)):
        if isinstance(each, ast.ClassDef):
            named = {
                line.target.id
                for line in each.body
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
            }
            if len(named & PARTS) > MOST:
                found.add(each.name)
    return found


def test_no_further_class_holds_the_parts_of_a_question():
    roots = (SOURCE, SOURCE.parents[1] / "lab" / "src")
    # an answer names what was asked
    paths = [(root, path) for root in roots for path in root.rglob("*.py") if path.parent.name != "answers"]
    found = {f"{p.relative_to(root).as_posix()} {held}" for root, p in paths for held in holders(p.read_text("utf-8"))}
    assert found == QUESTIONS | ANSWERS | OTHERS


@pytest.mark.parametrize(("fields", "held"), [(("model", "job"), set()), (("model", "job", "policy"), {"Asked"})])
def test_a_class_that_does_would_be_seen(fields, held):
    assert holders("class Asked:\n" + "".join(f"    {field}: object\n" for field in fields)) == held
