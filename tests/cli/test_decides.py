"""Answers that a user can act on: what fits instead, which number is in the way, what to do with what is left."""

import json

import pytest

from terminal import narrow_terminal, shown  # noqa: F401

pytestmark = pytest.mark.usefixtures("narrow_terminal")
OVER = ["llama-3-70b", "--on", "dgx-h100:64", "--tp", "8", "--micro", "4", "--seq", "8192", "--global-batch", "512"]


def data_of(capsys, arguments, code=0):
    return json.loads(shown(capsys, [*arguments, "--json"], code))


@pytest.mark.parametrize("verb", ["estimate", "simulate"])
def test_out_of_memory_ends_with_what_fits_and_what_it_costs(verb, capsys):
    text = shown(capsys, [verb, *OVER], 1)
    assert "nearest that fit in 77.3 GiB" in text
    assert "--micro 1" in text
    found = data_of(capsys, [verb, *OVER], 1)["that_fit"]
    assert found[0]["slower"] == min(each["slower"] for each in found)
    chosen = found[0]["policy"]
    words = [w for axis in ("tp", "pp", "cp", "dp", "zero") for w in (f"--{axis}", str(chosen[axis]))]
    words += ["--micro", str(chosen["micro_batch"]), "--recompute", chosen["recompute"], "--offload", chosen["offload"]]
    again = data_of(capsys, ["estimate", *OVER[:3], *OVER[-4:], *words])
    assert again["fits"]
    assert again["step_s"] == pytest.approx(found[0]["step_s"])


def test_an_illegal_policy_names_the_number(capsys):
    plan = ["plan", "llama-3-8b", "--on", "8xh100", "--top", "1"]
    found = data_of(capsys, [*plan, "--why-not", "tp=3", "--why-not", "best,tp=7", "--why-not", "tp=8,pp=2"])["why_not"]
    assert [item["why"] for item in found] == [
        "world: tp 3 does not divide 8 GPUs", "world: tp 7 does not divide 8 GPUs",
        "world: tp 8 x pp 2 does not divide 8 GPUs",
    ]  # fmt: skip
    assert "tp 3 does not divide 8 GPUs" in shown(capsys, [*plan, "--fix", "tp=3"], 1)


class TestOneNodeLost:
    def test_the_plan_takes_what_is_left(self, capsys):
        found = data_of(capsys, ["plan", "llama-3-70b", "--on", "dgx-h100:1016", "--top", "1"])
        assert found["best"]
        assert 508 <= found["gpus"] <= 1016
        assert any("1,016 GPUs" in note for note in found["notes"])
        command = next(note for note in found["notes"] if note.startswith("run: ")).split()[2:]
        assert data_of(capsys, command)["step_s"] == pytest.approx(found["recommended"]["step_s"])

    def test_uneven_accumulation_takes_as_long_as_the_batch_of_the_busiest(self, capsys):
        asked = ["estimate", "llama-3-8b", "--on", "24xh100", "--tp", "8", "--seq", "8192"]
        uneven = data_of(capsys, [*asked, "--global-batch", "64", "--uneven"])
        rounded = data_of(capsys, [*asked, "--global-batch", "66"])
        assert uneven["step_s"] == pytest.approx(rounded["step_s"])
        assert uneven["tokens_per_s_per_gpu"] == pytest.approx(rounded["tokens_per_s_per_gpu"] * 64 / 66)
        assert data_of(capsys, [*asked, "--global-batch", "64"], 1)["rule"] == "batch divides"
