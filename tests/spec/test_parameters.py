"""The table of parameters: its words are those of the plug-ins, and a value out of its range is refused by name."""

import pytest

from shardwise.plugins.pipeline import schedule_names
from shardwise.question import options_of
from shardwise.show.cli._option_schema import question_schema
from shardwise.spec.parameters import (
    SCHEDULES,
    Options,
    check_options,
    check_value,
    flag_of,
    parameters,
    stated,
)
from shardwise.spec.policy import OVERLAPS, Policy

RANGED = {name: row for name, row in parameters().items() if row.least is not None}


def test_schedules_are_those_of_the_plug_ins():
    assert sorted(SCHEDULES) == sorted(schedule_names())


def test_each_parameter_of_a_policy_is_one_of_its_fields():
    named = {name for name, row in parameters().items() if row.acts_on in ("policy", "overlap")}
    assert {"micro_batch" if name == "micro" else name for name in named} == set(Policy.__struct_fields__)
    assert {name for name, row in parameters().items() if row.acts_on == "overlap"} == set(OVERLAPS)


@pytest.mark.parametrize("name", parameters())
def test_a_row_says_what_it_is_for_and_what_is_taken_without_it(name):
    row = parameters()[name]
    assert row.text.endswith((".", ".)", "..."))
    assert row.default
    assert "{" not in row.text
    assert not row.words or all(word in row.words for word in (row.default.split(",")[0],) if " " not in row.default)


@pytest.mark.parametrize("name", RANGED)
def test_below_the_least_is_refused_by_name(name):
    row = RANGED[name]
    for value in [row.least - 1, *([row.least] if row.above else []), *([] if row.most is None else [row.most + 1])]:
        with pytest.raises(ValueError, match=rf"^{flag_of(name)}: .*out of range; write"):
            check_value(name, value)
    check_value(name, row.most or row.least)


@pytest.mark.parametrize("name", [name for name, row in parameters().items() if row.choices and not row.open])
def test_an_unknown_word_is_refused_with_the_known_ones(name):
    with pytest.raises(ValueError, match=rf"^{flag_of(name)}: 'zzz' is unknown; known: "):
        check_value(name, "zzz")
    for word in parameters()[name].words:
        check_value(name, word)


def test_nothing_is_stated_until_somebody_states_it():
    assert stated(Options()) == ()
    assert stated(options_of({"tp": 1, "sp": False, "uneven": True, "fix": "dp=2"})) == ("uneven", "tp", "sp", "fix")
    assert stated(options_of({"tp": 1, "seq": 4096}), "job") == ("seq",)
    with pytest.raises(ValueError, match="risk: 2 is out of range"):
        check_options(Options(risk=2.0))


def test_agents_see_the_same_options_types_and_ranges():
    schema = question_schema()
    assert set(schema) == {flag_of(name) for name in parameters()}
    assert schema["tp"] | {"description": ""} == {"type": "integer", "minimum": 1, "description": ""}
    assert schema["recompute"]["enum"] == ["none", "selective", "full"]
    assert (schema["risk"]["exclusiveMinimum"], schema["risk"]["maximum"]) == (0, 1)
    assert schema["fix"]["items"] == {"type": "string"}
