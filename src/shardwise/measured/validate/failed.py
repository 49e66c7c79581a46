"""Configurations that gave no result, and how well 'it fits' tells them from the runs that did."""

from pathlib import Path

from shardwise.measured.validate.predict import Prediction, predict
from shardwise.measured.validate.table import MeasuredRow, read_table

NEEDED = ("model", "gpus", "dp", "tp", "pp", "micro_batch", "global_batch", "zero_stage")
NANOTRON = {
    "source": "failed", "gpu": "H100-80GB-SXM", "gpus_per_node": "8", "internode_gbps_per_gpu": "400", "seq": "4096",
    "dtype": "bf16", "sp": "1", "vpp": "1", "cp": "1", "recompute": "none", "flash_attention": "1",
    "software": "nanotron",
}  # fmt: skip
"""what the table of failed runs does not say about each row: all are nanotron on nodes of eight H100"""


def read_failed(path: Path) -> list[MeasuredRow]:
    return [
        MeasuredRow(row=row.row, text={**NANOTRON, **row.text, "zero_stage_or_fsdp": row.word("zero_stage")})
        for row in read_table(path, NEEDED)
    ]


def failed_predictions(path: Path, stack: str = "auto") -> list[Prediction]:
    return predict(read_failed(path), stack)


def fit_balanced_accuracy(ran: list[Prediction], failed: list[Prediction]) -> float | None:
    """Mean of two shares: failed rows predicted not to run, rows that ran predicted to fit (unsupported: neither)."""
    right = [p.verdict == "ok" for p in ran if p.verdict != "unsupported"]
    refused = [p.verdict in ("oom", "illegal") for p in failed if p.verdict != "unsupported"]
    if not right or not refused:
        return None
    return (sum(right) / len(right) + sum(refused) / len(refused)) / 2
