"""The smallest cluster that is enough: powers of two first, then every whole node between the last that is not and the
first that is.

A step does not simply get shorter with every node: degrees have to divide the GPUs and the batch. Powers of two divide
best, so that hardly any size between two of them does better per GPU than the better of the two (`BETTER_BETWEEN`);
that bounds from below where to begin. From there each size is tried in turn, and the first that is enough is the
smallest. At a size that is no power of two the batch may move a little, so that it divides.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from shardwise.answers._budget import Budget
from shardwise.answers._sizes import SizePoint, point_at
from shardwise.plan import scan
from shardwise.question import Question
from shardwise.question.job import batches_near
from shardwise.show.cli._progress import answers, counted, left_out
from shardwise.spec.arch.tuned import tuned
from shardwise.spec.sizes import Sizes
from shardwise.step.estimate.tuned_flops import product_flops

BETTER_BETWEEN = 0.02
"""what a GPU may do more at a size between two powers of two: in Llama 3 8B on 64 to 256 H100, 70B on 256 to 512 and
Mixtral on 64 to 128 at most 0.006"""
Enough = Callable[[SizePoint], bool]


@dataclass(frozen=True)
class SizeQuestion:
    case: Question
    sizes: Sizes
    tokens: float
    """of the whole run"""
    limit: Budget
    rent: float | None
    most: int
    """GPUs"""

    @property
    def counts(self) -> list[int]:
        """Powers of two, inside a node too, then the largest number of whole nodes."""
        step, most = self.sizes.step, min(self.most, self.sizes.most)
        small = [2**i for i in range(step.bit_length() - 1)] if self.sizes.any_count else []
        counts = [gpus for gpus in small if gpus <= most] + self.sizes.doubling(1, most)
        named = self.sizes.named
        whole = named.gpus if named is not None and named.gpus <= most else most // step * step
        if not counts:
            raise ValueError(f"max-gpus: {most} is less than a node; write {step} or more")
        return sorted({*counts, *([whole] if whole else [])})

    @property
    def least(self) -> int:
        """GPUs that a deadline asks for at the peak rate, whatever the policy."""
        if self.limit.seconds is None or self.limit.usd is not None:
            return 1
        gpu = self.sizes.at(self.counts[0]).gpu
        trained = tuned(self.case.model, self.case.job.tuning)
        work = product_flops(trained, 0) * self.tokens
        return int(work / (gpu.peak(self.case.job.precision.compute) * self.limit.seconds)) + 1

    def at(self, gpus: int) -> SizePoint:
        """With the batch as stated, or near it where that is faster."""
        found = [self._with(batch, gpus) for batch in batches_near(self.case.job.global_batch, gpus)]
        return max(found, key=lambda point: point.report.tokens_per_s_per_gpu if point.report else 0.0)

    def may_be_in_time(self, gpus: int) -> bool:
        """Whether any policy is; a short scan where none is."""
        if self.limit.seconds is None:
            return True
        return any(self._fast_enough(batch, gpus) for batch in batches_near(self.case.job.global_batch, gpus))

    def _fast_enough(self, batch: int, gpus: int) -> bool:
        assert self.limit.seconds is not None
        case = replace(self.case, job=with_fields(self.case.job, global_batch=batch))
        step_s = self.limit.seconds * case.job.step_tokens / self.tokens
        found = scan(
            case.on(self.sizes.at(gpus)), top=1, losers=False, at_most_s=step_s, **case.bounds,
        )  # fmt: skip
        if not found.finished:
            raise KeyboardInterrupt
        return bool(found.best)

    def _with(self, batch: int, gpus: int) -> SizePoint:
        case = replace(self.case, job=with_fields(self.case.job, global_batch=batch))
        return point_at(case, self.sizes, gpus, self.tokens, self.limit, self.rent)


@dataclass(frozen=True)
class SizeAnswer:
    points: list[SizePoint]
    """ascending"""
    between: int
    """sizes between powers of two that were looked at"""
    left_out: list[str]
    """the note on what an interruption left out"""


def sizes_tried(asked: SizeQuestion) -> SizeAnswer:
    counts = asked.counts
    tried = [gpus for gpus in counts if gpus >= asked.least] or counts[-1:]
    points = answers(tried, "cluster sizes", asked.at)
    if missing := left_out(points, tried, "cluster sizes"):
        return SizeAnswer(points, 0, missing)
    seen = [p.cluster.gpus for p in points]
    goals = [fits] if asked.limit == Budget() else [_in_time] * (asked.limit.seconds is not None)
    if asked.limit.usd is not None and asked.limit.seconds is not None:
        goals.append(lambda point: point.meets)
    missing = []
    try:
        for enough in dict.fromkeys(goals):
            for gpus, point in counted(_between(asked, points, enough), "sizes between"):
                seen.append(gpus)
                if point is not None and enough(point):
                    points = sorted([*points, point], key=lambda p: p.cluster.gpus)
                    break
    except KeyboardInterrupt:
        missing = ["interrupted: a size between two of these may be enough"]
    return SizeAnswer(points, len(set(seen)) - len(tried), missing)


def fits(point: SizePoint) -> bool:
    return point.report is not None


def _in_time(point: SizePoint) -> bool:
    return fits(point) and "time" not in point.misses


def _between(asked: SizeQuestion, points: list[SizePoint], enough: Enough) -> Iterator[tuple[int, SizePoint | None]]:
    """Sizes in whole nodes above the last that is not enough and below the first that is; None: late whatever the
    policy."""
    first = next((i for i, point in enumerate(points) if enough(point)), None)
    if not first:
        return
    below, above = points[first - 1], points[first]
    step, begin = asked.sizes.step, below.cluster.gpus
    if asked.limit.seconds is not None:
        rates = [p.report.tokens_per_s_per_gpu for p in (below, above) if p.report is not None]
        most = (1.0 + BETTER_BETWEEN) * max(rates)
        begin = max(begin, int(asked.tokens / (asked.limit.seconds * most)))
    known = {p.cluster.gpus for p in points}
    for gpus in range(begin // step * step + step, above.cluster.gpus, step):
        if gpus >= step and gpus not in known:
            yield gpus, asked.at(gpus) if asked.may_be_in_time(gpus) else None
