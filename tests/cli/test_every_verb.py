"""Every verb that takes a job takes all of the job, and makes the same question of the same flags."""

import importlib
from typing import Any

import pytest

from shardwise.question import build
from shardwise.show.cli import main
from shardwise.show.cli._frame import app
from shardwise.show.cli._routes import route
from shardwise.spec.parameters import Options, flag_of, parameters

MODEL, ON = "llama-3-8b", ["--on", "8xh100"]
VERBS: dict[str, list[str]] = {
    "plan": [MODEL, *ON], "estimate": [MODEL, *ON], "simulate": [MODEL, *ON], "compare": [MODEL, *ON],
    "sweep": [MODEL, *ON, "--over", "micro=1:2"], "size": [MODEL, *ON], "size --max": ["sequence", MODEL, *ON],
    "operate": [MODEL, *ON], "search cuts": [MODEL, *ON], "search stages": [MODEL, *ON], "search": [MODEL, *ON],
    "place": [MODEL, *ON, "--topology", "none.conf"], "run": [MODEL, *ON], "verify": [MODEL, *ON],
    "fabric": [MODEL, *ON],
    "export": [MODEL, *ON, "--to", "megatron"], "preflight": [MODEL, *ON], "why": [".", "--model", MODEL, *ON],
    "watch": [".", "--once", "--model", MODEL, *ON],
    "learn": ["x.log", "--out", "x.toml", "--model", MODEL, *ON],
}  # fmt: skip
SEVERAL = {"compare": {"precision", "sync"}}
"""options that a verb takes several of, which therefore are its own"""
NO_QUESTION = ("search cuts", "learn", "why", "watch", "place")
"""verbs that make theirs after reading a file, or of one block: their options are tested, not the question"""
CASE = {
    "nic": "200Gbps/gpu", "host_memory": "1 TiB", "seq": "4096", "global_batch": "64", "optimizer": "sgd-m",
    "tokens": "1T", "failures": "rsc-1", "grad_dtype": "bf16", "precision": "fp8", "stack": "nanotron",
    "imbalance": 1.5, "dispatcher": "allgather",
}  # fmt: skip
REFUSED = {"seq": {"size --max"}, "stack": {"run", "verify"}}
FURTHER = {
    "uneven": None, "pipeline_passes": "2", "tune": "lora", "freeze": "embeddings", "packing": "on", "sync": "diloco",
    "lengths": "lognormal,mean=600,sigma=1",
}  # fmt: skip


class Stopped(ValueError):
    pass


@pytest.mark.parametrize("verb", VERBS)
def test_no_parameter_is_unknown_to_a_verb(verb):
    command = app
    for word in route([*verb.split(), "sequence"]):
        command = command[word] if word in command else command  # noqa: SIM401  an App has no get
    known = {name.lstrip("-") for each in command.assemble_argument_collection() for name in each.names}
    assert {flag_of(name) for name in parameters()} <= known


def made(verb: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The question that a verb makes, before anything is done with it."""
    seen: dict[str, Any] = {}

    def question(**given: Any) -> None:
        seen.update(given)
        raise Stopped("stopped here")

    monkeypatch.setattr(build, "Question", question)
    assert main([*verb.split(), *VERBS[verb], *words]) in (2, 70)  # refused, or stopped by this test
    return seen


def flags(options: dict[str, Any]) -> list[str]:
    return [str(word) for name, value in options.items() for word in (f"--{flag_of(name)}", value) if word is not None]


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in NO_QUESTION])
def test_the_same_flags_make_the_same_question(verb, monkeypatch, capsys):
    options = {name: value for name, value in CASE.items() if verb not in REFUSED.get(name, ())}
    options = {name: value for name, value in options.items() if name not in SEVERAL.get(verb, ())}
    found = made(verb, flags(options), monkeypatch)
    assert found, capsys.readouterr().err
    plain = {name: value for name, value in options.items() if name in Options.__dataclass_fields__}
    if verb in ("run", "verify"):
        plain["stack"] = "shardwise"
    expected: dict[str, Any] = {}
    monkeypatch.setattr(build, "Question", lambda **given: expected.update(given))
    build.open_question_of(MODEL, "8xh100", build.options_of(plain))
    assert {name for name in expected if found[name] != expected[name]} == set()


@pytest.mark.parametrize("name", FURTHER)
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in NO_QUESTION])
def test_what_a_verb_cannot_answer_for_is_refused_by_name(verb, name, monkeypatch, capsys):
    words = flags({name: FURTHER[name]} | ({"lengths": FURTHER["lengths"]} if name == "packing" else {}))
    found = made(verb, words, monkeypatch)
    told = capsys.readouterr().err
    assert found or told.startswith((f"error: {flag_of(name)}: ", "error: tune: ", "error: lengths: ")), told
    assert found or "leave" in told or "write a --global-batch" in told


def test_the_stage_s_own_headroom_is_the_table_s(capsys):
    module = importlib.import_module("shardwise.show.cli.stages")
    assert module.stages.__doc__
    assert main(["search", "stages", MODEL, *ON, "--pp", "2", "--headroom", "1.2"]) == 2
    assert "headroom: 1.2 is out of range; write a share" in capsys.readouterr().err
