"""A question made in Python has the answer that the command line gives, with the same defaults and notes."""

import json
from typing import Any

import msgspec
import pytest

import shardwise
from shardwise.question import ASSUMED, RECOMMENDED, SMALLEST, STATED, options_of
from shardwise.question.files import document_of, question_of_plan
from shardwise.show.cli import main
from shardwise.spec.parameters import flag_of, parameters
from shardwise.spec.policy import Policy
from terminal import refused, shown

EXAMPLES: list[tuple[str, str, dict[str, Any]]] = [
    ("llama-3-8b", "8xh100", {}),
    ("llama-3-8b", "8xh100", {"zero": 3}),
    ("llama-3-8b", "2x8xa100", {"nic": "100Gbps/node", "tp": 2, "seq": 4096, "global_batch": 256}),
    ("llama-3-70b", "dgx-h100:64", {"tp": 8, "pp": 4, "recompute": "full", "recompute_layers": 5}),
    ("mixtral-8x7b", "dgx-h100:64", {"tp": 2, "ep": 8, "pp": 2, "imbalance": 2.0, "dispatcher": "allgather"}),
    ("gpt2", "4xv100", {"micro": 4, "precision": "fp16", "tokens": "300B", "failures": "off"}),
    ("llama-3-8b", "8xh100", {"tune": "lora", "freeze": "embeddings", "seq": "4k"}),
    ("vit-l-16", "8xa100", {"tp": 2}),
    ("mnist-mlp", "2xh100", {"dp": 2}),
    ("llama-3-8b", "8xh100", {"pp": 4, "pipeline_passes": 2, "optimizer": "sgd-m", "grad_dtype": "bf16"}),
    ("llama-3-8b", "8xh100", {"zero": 3, "stack": "torchtitan", "precision": "fp8", "overlap_param": False}),
    ("llama-3-8b", "8xh100", {"fix": ["tp=8", "pp<=1"], "headroom": 0.8, "risk": 0.1}),
    ("llama-3-70b", "8xh100", {}),
]


def words_of(options: dict[str, Any]) -> list[str]:
    words = []
    for name, value in options.items():
        row = parameters()[name]
        if isinstance(value, bool):
            words.append(f"--{flag_of(name)}" if value else row.off)
        else:
            words += [
                word
                for one in (value if isinstance(value, list) else [value])
                for word in (f"--{flag_of(name)}", str(one))
            ]
    return words


@pytest.mark.parametrize(("model", "on", "options"), EXAMPLES)
def test_python_and_the_command_line_give_one_answer(model, on, options, capsys):
    ask = shardwise.question_of(model, on, **options)
    report = shardwise.report_of(ask.case, ask.policy)
    fits = report.fits
    told = json.loads(shown(capsys, ["estimate", model, "--on", on, *words_of(options), "--json"], 0 if fits else 1))
    assert msgspec.convert(told["policy"], Policy) == ask.policy
    assert (told["step_s"], told["peak_bytes"], told["fits"]) == (report.step_s, report.peak_bytes, fits)
    assert told["notes"] == list(ask.notes)
    assert told["policy_origin"] == ask.origin


def planned_by(capsys, model: str, on: str) -> str:
    main(["plan", model, "--on", on, "--json"])
    return capsys.readouterr().out


@pytest.mark.parametrize("on", ["8xh100", "dgx-h100:32", "2x8xa100"])
@pytest.mark.parametrize("model", ["llama-3-8b", "gpt2", "mixtral-8x7b"])
def test_the_policy_nobody_states_is_the_one_a_plan_recommends(model, on, capsys):
    planned = json.loads(planned_by(capsys, model, on))
    ask = shardwise.question_of(model, on)
    assert ask.origin == (RECOMMENDED if planned["recommended"] else SMALLEST)
    assert ask.policy == msgspec.convert((planned["recommended"] or planned["smallest"])["policy"], Policy)
    assert "state one with --tp" in ask.notes[0]


def test_any_stated_degree_makes_the_policy_the_user_s_own():
    assert shardwise.question_of("llama-3-8b", "8xh100", tp=1).origin == STATED
    assert shardwise.question_of("llama-3-8b", "8xh100", seq=4096).origin == RECOMMENDED
    assert shardwise.question_of("llama-3-8b", "8xh100", recommend=False).origin == ASSUMED


def test_a_plan_takes_a_stated_policy_as_bounds():
    open_question = shardwise.open_question_of("llama-3-8b", "8xh100", tp=2, recompute="none", overlap_tp=False)
    best = open_question.ranked(top=5).best
    assert best
    assert {(each.policy.tp, each.policy.recompute, each.policy.overlap_tp) for each in best} == {(2, "none", False)}


@pytest.mark.parametrize(("options", "message"), [
    ({"tpp": 8}, "did you mean 'tp'"), ({"tp": 0}, "tp: 0 is out of range"),
    ({"tp": 2.5}, "tp: 2.5 is not a whole number"),
    ({"tp": "8"}, "tp: '8' is not a whole number"), ({"uneven": 1}, "write True or False"),
    ({"recompute": "some"}, "recompute: 'some' is unknown"), ({"tp": 8, "fix": "pp=1"}, "fix: 'pp=1' bounds a search"),
    ({"headroom": 1.5}, "headroom: 1.5 is out of range"), ({"imbalance": 0.5}, "write 1 \\(balanced\\) or more"),
])  # fmt: skip
def test_a_bad_option_is_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        shardwise.question_of("llama-3-8b", "8xh100", **options)


def test_cards_of_a_described_cluster_are_stated_there():
    with pytest.raises(ValueError, match=r"nic: .*state its NICs"):
        shardwise.question_of("gpt2", shardwise.cluster_of("2x8xa100"), nic="100Gbps/node", tp=1)


def test_options_of_python_are_those_of_the_command_line():
    found = options_of({"seq": 4096, "recompute_modules": ("layernorm", "moe_act"), "fix": "tp=8", "offload_share": 1})
    assert (found.seq, found.recompute_modules, found.fix) == ("4096", "layernorm,moe_act", ["tp=8"])
    assert isinstance(found.offload_share, float)


@pytest.mark.parametrize("words", [
    ["compare", "gpt2", "--on", "4xv100", "--policy", "fsdp", "--micro", "2"],
    ["compare", "gpt2", "--on", "4xv100", "--policy", "fsdp", "--loss", "fused"],
    ["sweep", "gpt2", "--on", "v100", "--over", "gpus=2:4", "--policy", "fsdp", "--fix", "tp=2"],
])  # fmt: skip
def test_a_policy_in_words_outside_of_the_bounds_is_refused(words, capsys):
    refused(capsys, words, "write it in the policy")


def test_a_plan_file_keeps_its_job_and_its_policy(tmp_path, capsys):
    plan = tmp_path / "plan.json"
    plan.write_text(shown(capsys, ["plan", "llama-3-8b", "--on", "8xh100", "--precision", "fp8", "--optimizer", "sgd-m",
                                   "--tune", "lora", "--json"]))  # fmt: skip
    document = document_of(str(plan))
    ask, _ = question_of_plan(str(plan), document, options_of({}))
    assert (ask.job.precision.compute, ask.job.optimizer.name) == ("fp8", "sgd-m")
    assert ask.job.tuning.tune_text.startswith("lora,")
    assert ask.policy == msgspec.convert(document["recommended"]["policy"], Policy)
    other, _ = question_of_plan(str(plan), document, options_of({"seq": 2048, "precision": "bf16"}))
    assert (other.job.seq, other.job.precision.compute, other.policy) == (2048, "bf16", ask.policy)
    with pytest.raises(ValueError, match=r"tp: the plan .* states the policy; leave --tp out"):
        question_of_plan(str(plan), document, options_of({"tp": 8}))
