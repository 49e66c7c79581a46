"""Results in a notebook: each type is shown by its name, escaped, with a figure where it has numbers to compare."""

import importlib
import subprocess
import sys

import pytest

from shardwise import Job, Policy, case_of, cluster_of, load_ipython_extension, model_of, stack_of
from shardwise.plan.exhaustive import scan
from shardwise.show.notebook import SHOWN_AS, ranking_html, verdict_html
from shardwise.spec.model import Model
from shardwise.spec.rules import Verdict, verdict_of
from shardwise.step.simulate import simulate


class Formatter:
    """As IPython's: knows types by module and name."""

    def __init__(self):
        self.known = {}

    def for_type_by_name(self, module, name, show):
        self.known[module, name] = show

    def __call__(self, value):
        return self.known[type(value).__module__, type(value).__name__](value)


class Shell:
    def __init__(self):
        self.display_formatter = self
        self.formatters = {"text/html": Formatter()}


@pytest.fixture(scope="module")
def case():
    return case_of(model_of("gpt2"), cluster_of("8xh100"), Job(seq=1024, global_batch=64), stack_of("megatron-core"))


@pytest.fixture(scope="module")
def shown():
    shell = Shell()
    load_ipython_extension(shell)
    return shell.formatters["text/html"]


def test_types_are_where_they_are_said_to_be():
    for module, name in SHOWN_AS:
        assert getattr(importlib.import_module(module), name).__module__ == module


def test_a_ranking_shows_what_to_take_and_why(case, shown):
    found = scan(case, top=5)
    html = shown(found)
    assert "<svg" in html
    assert "why others lose" in html
    assert html.count("<tr>") == 2 + 1 + len(found.best), "facts, heads, policies"


def test_a_ranking_of_nothing_says_what_is_smallest():
    big = case_of(
        model_of("llama-3-70b"), cluster_of("1xh100"), Job(seq=8192, global_batch=1), stack_of("megatron-core")
    )
    assert "nothing fits" in ranking_html(scan(big))


def test_what_is_stated_shows_itself(case, shown):
    for value in (case.model, case.cluster, case.cluster.gpu, simulate(case, Policy(dp=8)).timeline()):
        assert "<svg" in shown(value)
    assert "dp8" in shown(Policy(dp=8))
    assert "cannot run" in shown(verdict_of(case.model, case.cluster, case.job, Policy(dp=8, tp=5)))
    assert verdict_html(Verdict(legal=True)).count("can run") == 1


def test_names_are_escaped(case, shown):
    import msgspec

    named = msgspec.structs.replace(case.model, name="<script>alert(1)</script>")
    assert isinstance(named, Model)
    assert "<script" not in shown(named)


def test_outside_of_a_notebook_nothing_is_imported():
    code = "import sys, shardwise; print([name for name in sys.modules if name.startswith('shardwise.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
