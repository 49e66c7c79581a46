"""Sequences, batches, budgets, degrees and network cards as people write them."""

import json
from typing import Any

import pytest

from shardwise.show.cli import main
from shardwise.spec.load import cluster_of, description_of
from shardwise.spec.sizes import sizes_of
from shardwise.units import in_full, sequence_tokens

ONE = ["llama-3-8b", "--on", "8xh100"]


def told(capsys: pytest.CaptureFixture[str], words: list[str]) -> dict[str, Any]:
    main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    assert main(words) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("32k", 32_768), ("128K", 131_072), ("1M", 1_048_576), ("1.5k", 1536), ("4096", 4096), ("8,192 tokens", 8192),
     ("8Ki", 8192), ("32k tokens", 32_768)],
)  # fmt: skip
def test_k_of_a_sequence_is_1024(text: str, tokens: int) -> None:
    assert sequence_tokens(text) == tokens
    assert bool(in_full(text, tokens)) == (not text[0:4].replace(",", "").isdigit())


@pytest.mark.parametrize("text", ["1.0001k", "k", "-1k", "3 GiB", ""])
def test_what_is_no_sequence_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="seq"):
        sequence_tokens(text)


def test_estimate_says_what_32k_is(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, ["estimate", *ONE, "--zero", "3", "--seq", "32k", "--global-batch", "4M tokens"])
    assert "--seq 32k: 32,768 tokens (1,024 to a k)" in found["notes"]
    assert any("'4M tokens' is 122.1 sequences: taken as 128" in note for note in found["notes"])


def test_batch_rounds_tokens_to_sequences_too(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, ["calc", "batch", "--global", "4M tokens", "--seq", "4k", "--dp", "16"])
    assert (found["seq_tokens"], found["global_sequences"]) == (4096, 1024)
    assert len(found["notes"]) == 2


@pytest.mark.parametrize("text", ["500k", "500k USD", "$500k", "500,000"])
def test_dollars_need_no_unit(capsys: pytest.CaptureFixture[str], text: str) -> None:
    words = ["size", "llama-3-8b", "--on", "8xh100", "--tokens", "100B", "--budget", text, "--max-gpus", "8"]
    assert told(capsys, words)["budget_usd"] == 500_000


def test_a_degree_of_plan_is_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, ["plan", *ONE, "--tp", "4", "--pp", "1", "--global-batch", "64", "--top", "3"])
    assert found["constraints"] == "tp=4, pp=1"
    assert {(plan["policy"]["tp"], plan["policy"]["pp"]) for plan in found["best"]} == {(4, 1)}
    assert "tp: 0 is out of range" in refused(capsys, ["plan", *ONE, "--tp", "0"])


@pytest.mark.parametrize(
    ("cards", "per_gpu", "rails"),
    [("100Gbps/node", 12.5e9 / 8, 1), ("8x400Gbps", 50e9, 8), ("2x100Gbps/node", 25e9 / 8, 2), ("25GB/s/gpu", 25e9, 8)],
)
def test_cards_behind_a_cluster(cards: str, per_gpu: float, rails: int) -> None:
    cluster = cluster_of(f"2x8xa100@{cards}")
    assert cluster.levels[1].bandwidth == pytest.approx(per_gpu)
    assert cluster.rails == rails
    assert cards in cluster.assumed
    assert cluster.levels[0] == cluster_of("2x8xa100").levels[0]


def test_sizes_keep_the_cards() -> None:
    sizes = sizes_of("2x8xa100@100Gbps/node")
    assert sizes.at(32).levels[1].bandwidth == pytest.approx(12.5e9 / 8)
    assert sizes.name_at(32) == "4x8xa100-80@100Gbps/node"
    assert sizes_of("dgx-h100@8x200Gbps").at(64).levels[1].bandwidth == pytest.approx(25e9)


@pytest.mark.parametrize(
    ("nic", "words"),
    [("100Gbps", "write '100Gbps/node'"), ("fast", "cannot read 'fast'"), ("0x400Gbps", "out of range"),
     ("100/node", "cannot read"), ("8x400Gbps/gpu", "out of range"), ("100 GiB/node", "bandwidths are in")],
)  # fmt: skip
def test_cards_that_say_too_little(capsys: pytest.CaptureFixture[str], nic: str, words: str) -> None:
    assert words in refused(capsys, ["estimate", "llama-3-8b", "--on", "2x8xa100", "--nic", nic])


def test_cards_are_stated_once(capsys: pytest.CaptureFixture[str]) -> None:
    twice = ["catalog", "clusters", "2x8xa100@100Gbps/node", "--nic", "100Gbps/node"]
    assert "states its NICs; write one" in refused(capsys, twice)


def test_thin_cards_slow_the_step_and_stay_in_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["estimate", "llama-3-8b", "--on", "2x8xa100", "--zero", "3", "--global-batch", "64"]
    thin = told(capsys, [*job, "--nic", "100Gbps/node"])
    assert thin["step_s"] > 1.2 * told(capsys, job)["step_s"]
    cured = told(capsys, [*job, "--nic", "100Gbps/node", "--tp", "3"])
    assert "--on 2x8xa100@100Gbps/node" in cured["cure"]


def test_a_cluster_is_described_and_per_gpu_explained(capsys: pytest.CaptureFixture[str]) -> None:
    notes = told(capsys, ["catalog", "clusters", "dgx-h100:1024"])["notes"]
    assert notes[0].startswith("DGX H100 SuperPOD: 8 x 400 Gb/s")
    assert "50 GB/s to other nodes are 400 Gbps for each GPU, 3,200 Gbps for a node of 8" in notes[1]
    assert description_of("2x8xa100@100Gbps/node").startswith("DGX A100")


@pytest.mark.parametrize(("model", "words"), [
    ("gpt2", "beyond gpt2's 1,024 positions: training so takes a longer table of them"),
    ("llama-3-8b", "beyond llama-3-8b's 8,192 positions: training so takes rotary angles stretched to it"),
])  # fmt: skip
def test_a_sequence_beyond_the_models_positions_is_told(
    capsys: pytest.CaptureFixture[str], model: str, words: str
) -> None:
    job = ["estimate", model, "--on", "8xh100", "--zero", "3", "--seq"]
    assert any(words in note for note in told(capsys, [*job, "32k"])["notes"])
    assert not any("beyond" in note for note in told(capsys, [*job, "1k"])["notes"])
