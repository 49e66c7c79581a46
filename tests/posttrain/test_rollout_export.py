"""Layouts of `posttrain` written for four programs, and read back by `check`."""

import json

import pytest

from shardwise.programs.formats import read_launch
from shardwise.show.cli import main

ASKED = ["posttrain", "qwen3-8b", "--on", "dgx-h100:32", "--prompts", "64", "--group", "8", "--prompt-tokens", "512",
         "--lengths", "1000,2048"]  # fmt: skip
AT, APART = ("--layout", "colocated"), ("--layout", "split", "--lag", "1", "--rollout-gpus", "16")
CASES = [
    ("verl", AT, "tp=4,pp=2,cp=1,zero=1"), ("verl", APART, "tp=2,pp=1,cp=1,zero=1"), ("verl", AT, "tp=1,pp=1,zero=3"),
    ("nemo_rl", AT, "tp=4,pp=2,cp=1,zero=1"), ("nemo_rl", APART, "tp=2,pp=1,zero=1"),
    ("openrlhf", AT, "tp=1,pp=1,cp=1,zero=3"), ("openrlhf", APART, "tp=2,pp=1,cp=1,zero=1"),
    ("prime_rl", APART, "tp=1,pp=1,cp=1,zero=3"),
]  # fmt: skip


def planned(capsys, folder, *more: str) -> str:
    assert main([*ASKED, *more, "--json"]) == 0
    path = folder / "layout.json"
    path.write_text(capsys.readouterr().out)
    return str(path)


@pytest.mark.parametrize(("target", "layout", "fixed"), CASES, ids=lambda value: str(value)[:24])
def test_what_is_written_is_read_back(tmp_path, capsys, target: str, layout, fixed: str) -> None:
    plan = planned(capsys, tmp_path, *layout, "--fix", fixed)
    take = json.loads((tmp_path / "layout.json").read_text())["recommended"]
    out = tmp_path / "out"
    assert main(["export", plan, "--to", target, "--model", "Qwen/Qwen3-8B", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (path,) = out.iterdir()
    assert told["files"] == {path.name: str(path)}
    form, found = read_launch([path])
    assert form.name == target
    stated = found.rollout
    assert (stated.prompts, stated.group, stated.engine_tp, stated.layout) == (64, 8, take["engine_tp"], take["mode"])
    assert (stated.rollout_gpus, found.gpus) == ((16, 16) if layout is APART else (None, 32))
    assert (stated.algorithm, stated.updates) == ("grpo", 1)
    assert stated.engine_share == pytest.approx(take["engine_share"])
    assert stated.refused == (("answers over several turns, with tools or an environment between them: their time is "
                               "not priced",) if target == "prime_rl" else ())  # fmt: skip
    policy = take["policy"]
    for axis in ("tp", "pp", "cp", "ep", "dp"):
        assert getattr(found.policy, axis) == policy[axis], axis
    assert (found.policy.zero == 3) == (policy["zero"] == 3)
    if target != "prime_rl":
        assert stated.reference
    if layout is APART and target != "prime_rl":
        assert stated.lag == 1
    if target == "verl":
        assert (stated.prompt_tokens, stated.cap) == (512, 2048)


@pytest.mark.parametrize(
    ("target", "layout", "fixed", "field"),
    [
        ("openrlhf", AT, "pp=2", "pp"),
        ("prime_rl", AT, "tp=1,pp=1,zero=3", "layout"), ("torchtitan", AT, "tp=1", "to"),
        ("verl", ("--layout", "split", "--lag", "2"), "tp=2", "lag"),
    ],
)  # fmt: skip
def test_what_a_program_cannot_state_is_refused(tmp_path, capsys, target: str, layout, fixed: str, field: str) -> None:
    plan = planned(capsys, tmp_path, *layout, "--fix", fixed)
    assert main(["export", plan, "--to", target]) == 2
    assert f"error: {field}: " in capsys.readouterr().err
