"""A few steps of the real job, from its log or traces, as the figures that are looked at once it runs."""

import numpy as np

from shardwise.measured.diagnose.measured_step import measured_step
from shardwise.measured.diagnose.pace import pace_of, series_of
from shardwise.programs.importers.run_files import RunFiles
from shardwise.run.preflight.measurements import Trial, TrialSteps, TrialTrace
from shardwise.run.preflight.planned import PlannedJob

COMMUNICATION = ("tp_comm", "cp_comm", "ep_comm", "fsdp_comm", "grad_comm", "param_comm", "comm")


def trial_of(files: RunFiles, plan: PlannedJob | None) -> Trial:
    """The first log of steps, and all traces together."""
    steps, traced = None, None
    training = plan.training if plan is not None else None
    log = next((log for log in files.logs if log.steps), None)
    if log is not None:
        job = training.case.job if training is not None else None
        series = series_of(
            log, job.step_tokens if job else None, training.policy.gpus if training else None,
            job.global_batch if job else None,
        )  # fmt: skip
        pace = pace_of(series, log)
        seconds = series.seconds[min(pace.dropped, len(series.seconds) - 1) :]
        middle = float(np.median(seconds))
        steps = TrialSteps(
            records=len(seconds), exact=series.exact, median_s=middle, tail=float(np.quantile(seconds, 0.99)) / middle,
            variation=float(seconds.std() / seconds.mean()),
        )  # fmt: skip
    if files.traces:
        step = measured_step(files.traces, training.policy if training is not None else None)
        parts = {cause.code: cause.seconds for cause in step.causes}
        compute = [rank.parts.get("compute", 0.0) for rank in step.ranks]
        exposed = sum(parts.get(code, 0.0) for code in COMMUNICATION)
        hidden = float(np.mean([sum(rank.hidden.values()) for rank in step.ranks]))
        traced = TrialTrace(
            step_s=step.step_s, parts_s=parts, exposed_s=exposed, hidden_s=hidden, slow_rank=step.slow_rank,
            ranks=len(step.ranks),
            slowest=float(np.median(compute) / max(compute)) if len(compute) > 1 and max(compute) > 0 else None,
        )  # fmt: skip
    return Trial(steps=steps, trace=traced)
