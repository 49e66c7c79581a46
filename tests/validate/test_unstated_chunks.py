"""Chunks of a stage that a measured run does not tell: none, of programs that have to be asked for them."""

import pytest

from shardwise.validate.interpret import measured_case
from shardwise.validate.table import MeasuredRow


@pytest.mark.parametrize(
    ("software", "notes", "chunks"),
    [
        ("Megatron-LM", "", {1}),
        ("Megatron-LM", "not interleaved", {1}),
        ("Megatron-LM", "interleaved stages", {1, 2, 4, 8}),
        ("Megatron-Core 0.8", "", {1, 2, 4, 8}),
        ("Megatron-Bridge", "", {1}),
    ],
)
def test_who_interleaves_unasked(software: str, notes: str, chunks: set[int]) -> None:
    cells = {
        "source": "x", "model": "Llama-3.1-70B", "gpu": "H100-80GB-SXM", "gpus": "80", "seq": "4096", "tp": "8",
        "pp": "10", "micro_batch": "1", "global_batch": "64", "software": software, "notes": notes,
    }  # fmt: skip
    found = measured_case(MeasuredRow(row=0, text=cells))
    assert {policy.vpp for policy in found.candidates} == chunks
