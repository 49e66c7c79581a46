"""The smallest cluster that is enough: powers of two first, then every whole node between the last that is not and the
first that is.

A step does not simply get shorter with every node: degrees have to divide the GPUs and the batch. Powers of two divide
best, so that hardly any size between two of them does better per GPU than the better of the two (`BETTER_BETWEEN`);
that bounds from below where to begin. From there each size is tried in turn, and the first that is enough is the
smallest. At a size that is no power of two the batch may move a little, so that it divides.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardwise.answers._budget import Budget
from shardwise.answers._sizes import SizePoint, SizeQuestion
from shardwise.show.cli._progress import answers, counted, left_out

BETTER_BETWEEN = 0.02
"""what a GPU may do more at a size between two powers of two: in Llama 3 8B on 64 to 256 H100, 70B on 256 to 512 and
Mixtral on 64 to 128 at most 0.006"""
Enough = Callable[[SizePoint], bool]


@dataclass(frozen=True)
class SizesTried:
    points: list[SizePoint]
    """ascending"""
    between: int
    """sizes between powers of two that were looked at"""
    left_out: list[str]
    """the note on what an interruption left out"""


def sizes_tried(asked: SizeQuestion) -> SizesTried:
    counts = asked.counts
    tried = [gpus for gpus in counts if gpus >= asked.least] or counts[-1:]
    points = answers(tried, "cluster sizes", asked.at)
    if missing := left_out(points, tried, "cluster sizes"):
        return SizesTried(points, 0, missing)
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
    return SizesTried(points, len(set(seen)) - len(tried), missing)


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
