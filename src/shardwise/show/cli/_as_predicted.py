"""The step of `run` as it was predicted and as it was measured."""

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from shardwise.answers.run import UPDATE, PredictedStep
from shardwise.measured.record.step import RecordHead
from shardwise.question import PolicyQuestion
from shardwise.question.studies.build import report_of
from shardwise.spec.gpu import Gpu
from shardwise.spec.reported import catalog_gpu
from shardwise.step.estimate.band import tuned_band

if TYPE_CHECKING:
    from shardwise.run.runtime.train.lines import StepLine

WARM_UP = 3
"""first steps that compile kernels and fill caches: left out where there are more"""


def as_predicted(
    found: PolicyQuestion, lines: Sequence["StepLine"], device: str, sharing: int = 0
) -> PredictedStep:  # fmt: skip
    """`sharing`: so many ranks had one GPU, which is not the machine that was planned for."""
    from shardwise.run.runtime.launch import machine_name

    here, same = machine_name(device), not sharing and planned_for_here(found.cluster.gpu, device)
    # of a step of post-training the estimate is the update's
    seconds = [line.step_s if line.rollout is None else line.rollout.seconds[UPDATE] for line in lines]
    measured = median(seconds[WARM_UP:] or seconds) if seconds else None
    warm = len(seconds) > WARM_UP and measured is not None
    predicted = report_of(found.case, found.policy).step_s
    return PredictedStep(
        predicted_s=predicted, predicted_for=found.cluster.name, measured_s=measured,
        measured_on="the CPU" if here == "cpu" else f"{here}, shared by {sharing} ranks" if sharing else here,
        slower=measured / predicted - 1 if same and measured is not None else None,
        first_s=seconds[0] if warm else None,
        warm_up_s=sum(max(each - (measured or 0.0), 0.0) for each in seconds[:WARM_UP]) if warm else None,
    )  # fmt: skip


def planned_for_here(gpu: Gpu, device: str) -> bool:
    from shardwise.run.runtime.launch import machine_name

    here = machine_name(device)
    return here == gpu.name or catalog_gpu(here) == gpu.name


def expected_head(found: PolicyQuestion, device: str) -> RecordHead:
    """What `watch` holds the run against; nothing where the prediction is of another machine."""
    if not planned_for_here(found.cluster.gpu, device):
        return RecordHead()
    report = report_of(found.case, found.policy)
    band = tuned_band(found.case)
    low_s, high_s = band.around(report.step_s) if band else (report.step_s, report.step_s)
    return RecordHead(
        predicted_step_s=report.step_s, predicted_low_s=low_s, predicted_high_s=high_s,
        predicted_peak_bytes=report.peak_bytes,
    )  # fmt: skip
