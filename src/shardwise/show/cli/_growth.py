"""What `shardwise size --max` lets grow, and how far it grows."""

from collections.abc import Callable
from dataclasses import replace

from msgspec.structs import replace as with_fields

from shardwise.answers.max import Growth, GrowthAxis
from shardwise.plan import Limits
from shardwise.plan.constraints import constraints_of
from shardwise.question import Question
from shardwise.question.job import whole_job
from shardwise.show.cli._flags import Flags
from shardwise.show.cli._progress import bar
from shardwise.spec.cluster import Cluster

EIGHTHS = 8


def grow(axis: GrowthAxis, cluster: Cluster) -> Growth:
    """Doubles while something fits (halves while nothing does), then looks inside the last doubling."""
    found = Growth()
    with bar("sizes") as told:

        def fits(size: int) -> bool:
            if size not in found.tried:
                found.cases[size] = axis.at(size)
                found.tried[size] = found.cases[size].ranked(cluster)
                told(len(found.tried), 0)
            return bool(found.tried[size].best)

        try:
            _grown(found, fits, axis)
        except KeyboardInterrupt:
            if not found.tried:
                raise
            found.finished = False
    return found


def _grown(found: Growth, fits: Callable[[int], bool], axis: GrowthAxis) -> None:
    size = axis.start
    while not fits(size) and size // 2 >= axis.least:
        size //= 2
    while found.tried[size].best and size * 2 <= axis.most and fits(size * 2):
        size *= 2
    for _ in range(axis.rounds if found.tried[size].best else 0):
        _refine(found, fits, axis.most)


def _refine(found: Growth, fits: Callable[[int], bool], most: int) -> None:
    """The largest eighth of the gap to the next size that fits; divisibility may skip some, so from above."""
    low, high = found.largest, found.next
    if low is None or high is None:
        return
    part = max((high - low) // EIGHTHS, 1)
    for size in range(min(high, most + 1) - part, low, -part):
        if fits(size):
            return


def sequence_axis(case: Question, flags: Flags, cluster: Cluster) -> GrowthAxis:
    def at(seq: int) -> Question:
        job, _ = whole_job(case.model, replace(flags, seq=str(seq)), case.job.precision, cluster.gpus)
        return replace(case, job=job)

    return GrowthAxis("tokens", 1024, 128, 2**26, 1, at)


def batch_axis(case: Question, cluster: Cluster) -> GrowthAxis:
    def at(micro: int) -> Question:
        every_dp = micro * cluster.gpus
        batch = every_dp * -(-case.job.global_batch // every_dp)
        only = (*case.only, *constraints_of([f"micro={micro}"]))
        return replace(
            case,
            job=with_fields(case.job, global_batch=batch),
            only=only,
            limits=with_fields(case.limits or Limits(), micro_batch=micro),
        )

    return GrowthAxis("sequences", 1, 1, 2**16, 0, at)


def model_axis(case: Question) -> GrowthAxis:
    def at(layers: int) -> Question:
        pattern = tuple(case.model.pattern[i * case.model.layers // layers] for i in range(layers))
        return replace(case, model=with_fields(case.model, pattern=pattern))

    return GrowthAxis("layers", 16, 1, 4096, 2, at)
