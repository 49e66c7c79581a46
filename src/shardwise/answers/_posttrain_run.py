"""A run of many steps of post-training, with the failures that `operate` expects."""

from msgspec import Struct

from shardwise.plan.posttrain import PosttrainLayout, PosttrainSpace
from shardwise.report.terminal import dollars_range
from shardwise.spec.job import Job
from shardwise.step.operate.failures import rates_of
from shardwise.step.operate.run import Operation
from shardwise.units import share_text, time_text


class PosttrainRun(Struct, frozen=True, kw_only=True):
    """A failure stops both sides, wherever it is: programs that keep one side going lose less."""

    steps: int
    seconds: float
    goodput: float
    """share of the time that is steps"""
    failures: float
    failure_rates: str
    save_every_s: float
    usd: tuple[float, float] | None

    def text(self) -> str:
        cost = "" if self.usd is None else f"; {dollars_range(self.usd)} USD"
        lost = "nothing fails" if not self.failures else (
            f"{self.failures:.2g} failures as {self.failure_rates}, saved every {time_text(self.save_every_s)}; "
            f"{share_text(self.goodput)} of it are steps"
        )  # fmt: skip
        return f"{self.steps:,} steps take {time_text(self.seconds)}: {lost}{cost}"


def run_of(
    space: PosttrainSpace, take: PosttrainLayout, steps: int, failures: str, step_usd: tuple[float, float] | None
) -> PosttrainRun:
    """`step_usd`: rent of one step."""
    policy, cluster = take.trainer.policy, space.cluster
    job = Job(
        seq=space.job.longest, global_batch=space.job.sequences, precision=space.precision, optimizer=space.optimizer
    )
    rates = rates_of(failures, cluster.gpus)
    run = Operation(
        model=space.model, job=job, cluster=cluster, step_s=take.step_s, work_s=steps * take.step_s, rates=rates,
        replicas=1 if policy.zero == 3 else policy.dp,
    )  # fmt: skip
    goodput = run.goodput()
    seconds = run.work_s / goodput.share
    usd = None if step_usd is None else (step_usd[0] * seconds / take.step_s, step_usd[1] * seconds / take.step_s)
    return PosttrainRun(
        steps=steps, seconds=seconds, goodput=goodput.share, failures=goodput.failures_per_s * seconds,
        failure_rates=rates.name, save_every_s=goodput.interval_s, usd=usd,
    )  # fmt: skip
