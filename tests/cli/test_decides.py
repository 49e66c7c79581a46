"""Answers that a user can act on: what fits instead, which number is in the way, what to do with what is left."""

import json

import pytest

from shardwise import Job, Policy, case_of, cluster_of, model_of, stack_of
from shardwise.show.cli._that_fit import warn_of_memory
from terminal import narrow_terminal, refused, shown  # noqa: F401

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


def test_a_run_that_should_not_fit_is_told_before_it_starts(capsys):
    case = case_of(model_of("llama-3-8b"), cluster_of("8xh100"), Job(seq=8192, global_batch=64), stack_of("shardwise"))
    warn_of_memory(case, Policy(dp=8, zero=3))
    assert capsys.readouterr() == ("", "")
    warn_of_memory(case, Policy(dp=8, zero=0))
    found = capsys.readouterr()
    assert not found.out
    first, *others = found.err.splitlines()
    assert first.startswith("warning: ")
    assert others[0].startswith("  --zero 2: step +")


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
        assert found["gpus"] == 1016
        assert found["global_sequences"] % 508 == 0, "a batch that is assumed divides by the GPUs"
        command = found["next"][0].split()[1:]
        assert data_of(capsys, command)["step_s"] == pytest.approx(found["recommended"]["step_s"])

    def test_uneven_accumulation_takes_as_long_as_the_batch_of_the_busiest(self, capsys):
        asked = ["estimate", "llama-3-8b", "--on", "24xh100", "--tp", "8", "--seq", "8192"]
        uneven = data_of(capsys, [*asked, "--global-batch", "64", "--uneven"])
        rounded = data_of(capsys, [*asked, "--global-batch", "66"])
        assert uneven["step_s"] == pytest.approx(rounded["step_s"])
        assert uneven["tokens_per_s_per_gpu"] == pytest.approx(rounded["tokens_per_s_per_gpu"] * 64 / 66)
        assert data_of(capsys, [*asked, "--global-batch", "64"], 1)["rule"] == "batch divides"


class TestTables:
    @pytest.mark.parametrize("words", [
        ["size", "llama-3-70b", "--tokens", "1T", "--on", "dgx-h100:64"],
        ["sweep", "llama-3-70b", "--on", "dgx-h100:64", "--over", "seq=4096:65536"],
        ["size", "--max", "sequence", "llama-3-70b", "--on", "dgx-h100:16"],
    ], ids=lambda words: words[0])  # fmt: skip
    def test_rows_do_not_come_apart_and_their_codes_are_told(self, words, capsys):
        """Only a policy may go on in the next line: its numbers stand side by side in the first."""
        text = shown(capsys, words)
        assert "…" not in text
        table = text.split("────\n", 1)[1].split("\n\n", 1)[0].splitlines()
        for line in table:
            cells = line.split()
            first, last = line[:6].strip(), cells[-1]
            assert (first and (last[-1].isdigit() or last[-1] in "-%M!")) or not any(c[0].isdigit() for c in cells)
        legend = " ".join(text.split("codes: ", 1)[1].split("\n- ", 1)[0].split())
        assert "dp data parallel" in legend
        for code in ("tp", "pp", "cp"):
            assert (f"{code} " in legend) == any(f" {code}" in line for line in table)

    def test_a_host_that_is_too_small_is_not_planned_on(self, capsys):
        plan = ["plan", "llama-3-70b", "--on", "8xh100", "--top", "1"]
        needed = data_of(capsys, plan)["recommended"]["host_bytes"] * 8
        assert needed > 100 * 2**30
        assert data_of(capsys, [*plan, "--host-memory", "100 GiB"], 1)["best"] == []
        roomy = f"{needed * 1.01 / 2**30:.0f} GiB"
        assert data_of(capsys, [*plan, "--host-memory", roomy])["recommended"]["host_bytes"] * 8 <= 1.02 * needed
        asked = ["estimate", "llama-3-70b", "--on", "8xh100", "--tp", "8", "--offload", "optimizer"]
        assert data_of(capsys, [*asked, "--host-memory", "100 GiB"], 1)["host_fits"] is False
        assert "98.6 GiB offloaded by each GPU, 42% of" in shown(capsys, asked)
        refused(capsys, [*asked, "--host-memory", "100"], "host-memory")
