"""Python's questions have the command line's answers."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from shardwise import (
    Policy,
    cluster_of,
    estimate_of,
    model_of,
    open_question_of,
    plan_of,
    posttrain_of,
    question_of,
    report_of,
    table_of,
)
from shardwise.show.cli import main
from shardwise.show.cli._agent_tools import answered, asked_of, tools
from shardwise.spec.dump import to_yaml


def printed(capsys, *words):
    main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


TWINS = [
    (("llama-3-8b", "8xh100"), {}),
    (("llama-3-8b", "dgx-h100:64"), {"tp": 4, "dp": 16}),
    (("llama-3-8b", "dgx-h100:64"), {"tp": 4, "pp": 4, "vpp": 4}),
    (("llama-3-8b", "dgx-h100:64"), {"tp": 64, "dp": 1}),
    (("llama-3-8b", "dgx-h100:64"), {"dp": 48}),
    (("llama-3-8b", "dgx-h100:64"), {"pp": 64}),
    (("llama-3-8b", "dgx-h100:64"), {"ep": 8}),
    (("llama-3-70b", "8xh100"), {"tp": 8, "offload": "optimizer", "host_memory": "100 GiB"}),
    (("llama-3-8b", "2x8xa100-40"), {"nic": "100Gbps/node", "zero": 3}),
]


def flags(options):
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.mark.parametrize(("asked", "options"), TWINS)
def test_estimate_has_a_twin(asked, options, capsys):
    model, on = asked
    assert estimate_of(model, on, **options).data() == printed(capsys, "estimate", model, "--on", on, *flags(options))


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        (("llama-3-8b", "8xh100"), {}),
        (("llama-3-8b", "2x8xa100-40@100Gbps/node"), {"tune": "lora", "stack": "trl"}),
        (("mixtral-8x7b", "4x8xh100"), {"tokens": "1T", "pp": 2}),
    ],
)
def test_plan_has_a_twin(asked, options, capsys):
    model, on = asked
    mine, theirs = plan_of(model, on, **options).data(), printed(capsys, "plan", model, "--on", on, *flags(options))
    assert mine["recommended"] == theirs["recommended"]
    assert mine["best"] == theirs["best"]
    assert mine["next"] == theirs["next"]
    assert mine["notes"] == theirs["notes"]


@pytest.mark.parametrize("policy", [
    Policy(dp=1, tp=64), Policy(dp=48), Policy(dp=1, pp=64), Policy(dp=64, ep=8), Policy(dp=2, pp=64),
])  # fmt: skip
def test_what_cannot_run_is_not_priced(policy):
    case = question_of("llama-3-8b", on="dgx-h100:64", tp=4).case
    with pytest.raises(ValueError, match=r"^policy: .* cannot run"):
        report_of(case, policy)


def test_a_table_of_policies(capsys):
    question = open_question_of("llama-3-8b", on="dgx-h100:64")
    rows = table_of(question, ["tp=4", {"tp": 4}, {"tp": 64, "dp": 1}, Policy(dp=64, zero=3)])
    step_s = printed(capsys, "estimate", "llama-3-8b", "--on", "dgx-h100:64", "--tp", "4")["step_s"]
    assert rows[0]["step_s"] == rows[1]["step_s"] == step_s
    assert rows[2]["step_s"] is None
    assert rows[2]["rule"] == "tp divides heads"
    assert rows[3]["legal"]
    assert len({frozenset(row) for row in rows}) == 1, "the same columns in every row"
    json.dumps(rows)
    with pytest.raises(ValueError, match="tpp"):
        table_of(question, [{"tpp": 4}])


def test_fields_are_as_good_as_files():
    import yaml

    fields = yaml.safe_load(to_yaml(cluster_of("2x8xa100-40")))
    assert cluster_of(fields).levels == cluster_of("2x8xa100-40").levels
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "intermediate_size": 128, "vocab_size": 256, "_name_or_path": "mine"}  # fmt: skip
    assert model_of(config).name == "mine"
    with pytest.raises(ValueError, match="hidden_size"):
        model_of({"model_type": "llama"})
    with pytest.raises(ValueError, match="gpu"):
        cluster_of({"gpus": 8})


def test_a_plot(tmp_path):
    picture = plan_of("llama-3-8b", on="8xh100").plot()
    assert "<svg" in picture.html
    picture.save(tmp_path / "plan.html")
    assert (tmp_path / "plan.html").read_text() == picture.html
    with pytest.raises(ValueError, match="plot"):
        estimate_of("llama-3-8b", on="8xh100", ep=8).plot()


def test_posttrain_is_the_verbs_and_the_tools(capsys, tmp_path, monkeypatch) -> None:
    """Python, the command line and the tool for agents give one answer."""
    asked = {"prompts": 32, "group": 8, "lengths": "600,2048", "layout": "split", "lag": "1"}
    answer = posttrain_of("llama-3.1-8b", on="8xh100", **asked)
    words = [
        "posttrain",
        "llama-3.1-8b",
        *(word for name, value in asked.items() for word in (f"--{name}", str(value))),
    ]
    assert main([*words, "--on", "8xh100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert json.loads(msgspec.json.encode(answer))["recommended"]["step_s"] == told["recommended"]["step_s"]
    tool = next(tool for tool in tools() if tool.called == "posttrain")
    source = str(Path(__file__).resolve().parents[2] / "src")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]))
    found = answered(asked_of(tool, ["llama-3.1-8b"], "8xh100", asked, tmp_path), tmp_path)
    assert json.dumps(told["recommended"]["step_s"]) in json.dumps(found)
    with pytest.raises(ValueError, match=r"^prompt: .*prompts"):
        posttrain_of("llama-3.1-8b", on="8xh100", prompt=3)
