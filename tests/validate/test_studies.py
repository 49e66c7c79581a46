"""Rows that scale one job share what their source left out."""

from typing import Any

from shardwise.measured.validate.predict import predict
from shardwise.measured.validate.studies import SAME
from shardwise.measured.validate.table import MeasuredRow

JOB = {
    "source": "a paper", "model": "gpt-3-175b", "gpu": "A100-80GB-SXM", "gpus_per_node": "8", "seq": "2048",
    "dtype": "bf16", "tp": "4", "pp": "8", "vpp": "12", "micro_batch": "1", "zero_stage_or_fsdp": "1",
    "software": "Megatron-LM 2021",
}  # fmt: skip


def _row(number: int, gpus: int, **changed: str) -> MeasuredRow:
    return MeasuredRow(row=number, text={**JOB, "gpus": str(gpus), "global_batch": str(gpus), **changed})


def _recompute(*rows: MeasuredRow) -> list[Any]:
    return [found.policy.recompute if found.policy else None for found in predict(list(rows))]


def test_what_the_smallest_run_needs_all_have() -> None:
    """On 64 GPUs the optimizer's state leaves no room for activations; on 512 it is sharded over eight times more."""
    alone = [*_recompute(_row(0, 64)), *_recompute(_row(0, 512))]
    assert alone == ["full", "selective"]
    together = predict([_row(0, 64), _row(1, 512)])
    assert [found.policy.recompute for found in together if found.policy] == ["full", "full"]
    assert all(SAME in found.why for found in together)


def test_other_jobs_and_stated_settings_stay_their_own() -> None:
    assert _recompute(_row(0, 64), _row(1, 512, seq="1024")) == ["full", "none"]
    assert _recompute(_row(0, 64, source="another"), _row(1, 512)) == ["full", "selective"]
    assert _recompute(_row(0, 64), _row(1, 512, recompute="selective")) == ["full", "selective"]


def test_a_study_in_which_nothing_fits_every_run_is_read_row_by_row() -> None:
    found = predict([_row(0, 32), _row(1, 512)])
    assert [each.verdict for each in found] == ["oom", "ok"]
    assert not any(SAME in each.why for each in found)
