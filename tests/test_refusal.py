"""Bad input ends with 2, a mistake of ours with 70, though both are ValueErrors."""

import json
from contextlib import contextmanager

import numpy as np
import pytest

from shardwise.refusal import is_refusal
from shardwise.show.cli import gpus, main
from shardwise.units import bytes_of, seconds_of


def caught(call) -> ValueError:
    try:
        call()
    except ValueError as problem:
        return problem
    raise AssertionError("nothing was raised")


@contextmanager
def passing_on():
    try:
        yield
    except ValueError:
        raise


def through_a_context():
    with passing_on():
        return seconds_of("soon")


def test_raise_statements_of_ours_are_refusals():
    assert is_refusal(caught(lambda: bytes_of("80")))
    assert is_refusal(caught(through_a_context))


@pytest.mark.parametrize("call", [lambda: np.argmin([]), lambda: json.loads("{"), lambda: int("x")])
def test_errors_of_libraries_and_expressions_are_not(call):
    assert not is_refusal(caught(call))


def test_an_expression_that_fails_inside_shardwise_is_not():
    code = compile("def convert(text):\n    return int(text)\n", "units.py", "exec")
    inside: dict[str, object] = {"__name__": "shardwise.units"}
    exec(code, inside)
    assert not is_refusal(caught(lambda: inside["convert"]("x")))  # type: ignore[operator]


def test_exit_codes(monkeypatch, capsys):
    assert main(["catalog", "gpus", "h10o"]) == 2
    assert "did you mean" in capsys.readouterr().err
    monkeypatch.setattr(gpus, "gpu_of", lambda _: np.argmin([]))
    assert main(["catalog", "gpus", "h100"]) == 70
    told = capsys.readouterr().err
    assert "a mistake in shardwise" in told
    assert "argmin" in told


def test_a_published_layout_is_ranked_where_a_stack_can_run_nothing_of_its_space(capsys):
    assert main(["catalog", "layouts", "bloom/176b", "--stack", "torch-fsdp", "--json"]) in (0, 1)
    today = json.loads(capsys.readouterr().out)["layouts"][0]["today"]
    assert (today["legal"], today["best"]) == (0, None)
    assert "torch-fsdp" in today["why"]


@pytest.mark.parametrize("text", ["-", "+", "-nan", "e5", ",", "_s"])
def test_signs_and_exponents_without_a_number_are_refused(text):
    assert is_refusal(caught(lambda: seconds_of(text, "time")))


def test_names_no_file_system_has_are_refused_in_one_line(capsys):
    for word in ("\ud800", "a\0b", "org/\ud800", "org/a\0b"):
        assert main(["catalog", "models", word]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_plan_whose_bytes_are_no_text_is_refused_by_name(tmp_path, capsys):
    (tmp_path / "plan.json").write_bytes(b'{"versi\xffon": 1}')
    (tmp_path / "script.py").write_text("def build(): ...\ndef batch(): ...\ndef step(model, batch): ...\n")
    assert main(["prove", str(tmp_path / "script.py"), str(tmp_path / "plan.json")]) == 2
    assert "plan.json is not a plan" in capsys.readouterr().err
