"""Verbs on a hybrid model: those that plan take it, those that run it refuse and say why."""

import json

import pytest

from terminal import narrow_terminal, refused, shown

__all__ = ["narrow_terminal"]

pytestmark = pytest.mark.usefixtures("narrow_terminal")


def test_a_hybrid_in_full(capsys):
    text = " ".join(shown(capsys, ["models", "nemotron-3-super"]).split())
    assert "40 x Mamba-2: 128 heads of 64, state 128, 8 groups" in text
    assert "512 experts of 2,688 in a latent of 1,024, 22 active + shared 5,376" in text


def test_an_estimate_says_what_it_assumes_of_the_scan(capsys):
    arguments = ["estimate", "nemotron-h-8b", "--on", "dgx-h100:8", "--tp", "2", "--global-batch", "32"]
    text = " ".join(shown(capsys, arguments).split())
    assert "Mamba-2 scan: 10 GB/s of memory traffic for each multiprocessor" in text


def test_a_plan_never_cuts_a_group(capsys):
    found = json.loads(shown(capsys, ["plan", "nemotron-h-8b", "--on", "2x8xh100", "--global-batch", "32", "--json"]))
    assert found["plans"]
    assert all(8 % plan["policy"]["tp"] == 0 for plan in found["plans"])


@pytest.mark.parametrize("verb", ["run", "verify"])
def test_what_executes_refuses_a_hybrid(capsys, verb):
    pytest.importorskip("torch")
    refused(capsys, [verb, "nemotron-3-nano", "--on", "2xh100"], "layers of one mixer each (hybrid_override_pattern)")


def test_no_cut_of_a_mixed_layer(capsys):
    refused(capsys, ["cuts", "nemotron-3-nano", "--on", "8xh100"], "write attention or moe")
    assert "latent down" in shown(capsys, ["cuts", "nemotron-3-super", "--on", "8xh100", "--block", "moe"])
