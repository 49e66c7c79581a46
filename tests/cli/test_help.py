"""`--help`: two examples of every verb that run as they stand, options in groups, allowed values by name."""

import shlex

import pytest

from shardwise.plugins.optimizers import optimizer_names
from shardwise.plugins.pipeline import schedule_names
from shardwise.show.cli import main
from shardwise.show.cli._examples import EXAMPLES, FIRST
from shardwise.show.cli._frame import app
from shardwise.show.cli._routes import route
from shardwise.show.cli._verbs import FIRST_SCREEN, GROUPS, VERBS, WORDS
from shardwise.spec.job import PRECISIONS
from shardwise.spec.policy import ATTENTION, OFFLOAD, ORDERS, RECOMPUTE
from terminal import narrow_terminal, shown  # noqa: F401

pytestmark = pytest.mark.usefixtures("narrow_terminal")
LONG = (
    "run",
    "verify",
    "trace",
    "auto",
    "calibrate",
    "learn",
    "validate",
    "checkpoints",
    "checkpoints diff",
    "checkpoints convert",
    "export",
    "check",
    "place",
    "why",
    "watch",
    "serve",
)
"""they train, measure, predict hundreds of runs or need files; other tests do that"""
SECOND = [f"{verb} {word}" for verb, words in WORDS.items() for word in words]
CHEAP = [words for verb, both in EXAMPLES.items() for words in both if verb not in LONG]


def test_every_verb_has_two_examples_of_its_own():
    assert set(EXAMPLES) == {*VERBS, *SECOND}
    for verb, both in EXAMPLES.items():
        assert len(set(both)) == 2
        assert all(f"{each} ".startswith(f"{verb} ") for each in both)


@pytest.mark.parametrize("words", [*FIRST, *CHEAP])
def test_examples_run(words, capsys):
    assert shown(capsys, shlex.split(words))


@pytest.mark.parametrize("words", [words for verb in LONG for words in EXAMPLES[verb]])
def test_long_examples_are_understood(words):
    app.parse_args(route(shlex.split(words)), exit_on_error=False, print_error=False)


@pytest.mark.parametrize("verb", [*VERBS, *SECOND])
def test_help_shows_them(verb, capsys):
    text = shown(capsys, [*verb.split(), "--help"])
    for each in EXAMPLES[verb]:
        assert f"shardwise {each}" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= max(80, *(len(f"  shardwise {each}") for each in EXAMPLES[verb]))


def test_without_a_verb_the_first_steps_are_shown(capsys):
    text = shown(capsys, [])
    assert all(f"shardwise {each}" in text for each in FIRST)
    listed = [line.split()[1] for line in text.splitlines() if line.startswith("│ ")]
    assert [verb for verb in listed if verb in VERBS] == list(FIRST_SCREEN)
    assert len(FIRST_SCREEN) == 8


def test_verbs_stand_in_groups_with_a_line_each(capsys):
    text = shown(capsys, ["--help-all"])
    places = [text.index(f"─ {group} ─") for group in GROUPS]
    assert places == sorted(places)
    assert {verb for verbs in GROUPS.values() for verb in verbs} <= set(VERBS)
    for verb, question in VERBS.items():
        assert any(line.lstrip("│ ").startswith(f"{verb} ") and question in line for line in text.splitlines()), verb


@pytest.mark.parametrize(("verb", "groups"), [
    ("estimate", ["Cluster", "Job", "Policy", "Overlap", "Output"]),
    ("simulate", ["Cluster", "Job", "Policy", "Overlap"]),
    ("plan", ["Cluster", "Job", "Policy", "Question", "Output"]), ("size", ["Cluster", "Job", "Output"]),
    ("sweep", ["Cluster", "Job", "Output"]),
])  # fmt: skip
def test_options_stand_in_groups(verb, groups, capsys):
    text = shown(capsys, [verb, "--help-all"])
    places = [text.index(f"─ {group} ─") for group in groups]
    assert places == sorted(places)
    if verb in ("estimate", "plan"):
        assert "─ Parameters ─" not in text


def test_allowed_values_are_listed(capsys):
    text = " ".join(shown(capsys, ["estimate", "--help-all"]).replace("│", " ").split())
    for name in PRECISIONS:
        assert f" {name}" in text
    for values in (optimizer_names(), RECOMPUTE, OFFLOAD, ATTENTION, ORDERS):
        assert ", ".join(values) in text
    listed = text.split("--schedule STR ", 1)[1].split(". [", 1)[0]
    assert sorted(listed.split(", ")) == sorted(schedule_names())


def test_an_example_that_fails_would_be_seen(capsys):
    assert main(["plan", "llama-3-8b", "--on", "8xh1000"]) == 2
    assert capsys.readouterr().err
