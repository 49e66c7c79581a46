"""The lines of a cluster made of unlike parts: a pipeline through all of them, the stages of each part side by side.

Each part has its own number of stages, tensor parallelism and micro-batch; together they pass on the same sequences at
a time. Where two parts meet, activations go over a link of the user's: it is one more thing that paces the pipeline.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.problems.joint._problem import Line
from shardwise.plan.search.problems.stages import StageOption, StageProblem
from shardwise.plan.search.problems.stages._build import (
    best_segments,
    idle_share,
    joined_tables,
    once_seconds,
    stretch_of,
)
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import divisors, split_refusal
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.step.simulate.segments import Segments
from shardwise.work.case import Case
from shardwise.work.ops import element_bytes

MOST_STAGES = 16
"""of one part"""
MOST_MICRO = 16
MOST_WAYS = 200_000
MOST_REFINED = 3_000
"""ways whose bounds are worked out with all they do once"""
MOST_BUILT = 240
"""ways whose stages may be worked out; the bounds of the others still count"""
SCHEDULE = "1f1b"
MIXES = (("none", "full"),)
ROUNDING = 1e-9


@dataclass(frozen=True)
class PartLink:
    """Between two parts, all of it, each way."""

    bytes_per_s: float
    latency_s: float = 0.0

    def seconds(self, count: float) -> float:
        return count / self.bytes_per_s + self.latency_s


@dataclass(frozen=True)
class ClusterPart:
    """GPUs of one kind in one place."""

    case: Case
    limit_bytes: float
    """memory one of its stages may fill"""
    usd_per_s: float = 0.0
    """of all its GPUs; 0 where money is not asked for"""


@dataclass(frozen=True)
class _Way:
    """How one part takes part."""

    stages: int
    tp: int
    dp: int
    layer_s: float
    """one layer, one micro-batch"""
    stretch: float
    """the stack's allowance for waiting, as a factor, at least"""


@dataclass(frozen=True)
class _WayFacts:
    once_s: float
    """once a step, in a pipeline made of this way alone"""
    stretch: float
    embedding_s: float
    head_s: float


@dataclass
class PartLines:
    parts: tuple[ClusterPart, ...]
    link: PartLink
    weight: float = 1.0
    """objective of a second of the step on all parts"""
    _tables: dict[tuple[int, Policy], tuple[tuple[Segments, Ints], Estimate]] = field(default_factory=dict, repr=False)

    @property
    def layers(self) -> int:
        return self.parts[0].case.model.layers

    def below(self, best: float, most: int = MOST_BUILT) -> tuple[list[Line], float]:
        """Lines whose bound is below the best objective, and the least bound of those left out."""
        job, found = self.parts[0].case.job, list[tuple[float, int, tuple[_Way, ...]]]()
        for at_once in divisors(job.global_batch):
            own = [self._ways(place, at_once) for place in range(len(self.parts))]
            if all(own) and np.prod([len(each) for each in own]) <= MOST_WAYS:
                found += [(least, at_once, ways) for ways in product(*own)
                          if (least := self._least(at_once, ways)) < best]  # fmt: skip
        found.sort(key=lambda each: each[0])
        near, far = found[:MOST_REFINED], found[MOST_REFINED:]
        exact = sorted(self._refined(near), key=lambda each: each[0])
        alive = [each for each in exact if each[0] < best]
        rest = min([*(least for least, *_ in alive[most:]), *(least for least, *_ in far[:1])], default=np.inf)
        return [self._line(*each) for each in alive[:most]], rest

    def _refined(
        self, found: Sequence[tuple[float, int, tuple[_Way, ...]]]
    ) -> Iterator[tuple[float, int, tuple[_Way, ...], tuple[int, ...]]]:
        """With what each order of the parts does once a step, and with both ends of the model where they lie."""
        asked: dict[int, set[tuple[int, int, int, int]]] = {}
        for _, at_once, ways in found:
            pp = sum(way.stages for way in ways)
            for place, way in enumerate(ways):
                asked.setdefault(place, set()).add((at_once, pp, way.tp, way.dp))
        facts = {place: self._facts(place, sorted(keys)) for place, keys in asked.items()}
        for least, at_once, ways in found:
            pp = sum(way.stages for way in ways)
            own = [facts[place][at_once, pp, way.tp, way.dp] for place, way in enumerate(ways)]
            for order in permutations(range(len(self.parts))):
                yield max(least, self._exact(at_once, ways, own, order)), at_once, ways, order

    def _facts(
        self, place: int, keys: Sequence[tuple[int, int, int, int]]
    ) -> dict[tuple[int, int, int, int], "_WayFacts"]:
        """Of one part: what (sequences at a time, stages of all parts, tp, dp) brings along."""
        case = self.parts[place].case
        rows = [self._policy(place, pp, tp, dp, at_once) for at_once, pp, tp, dp in keys]
        times = estimate(case, Policies.of(rows), every_stage=True).times
        micro = np.array([case.job.global_batch / at_once for at_once, *_ in keys])
        stage, pps = times.stage_s, np.array([pp for _, pp, *_ in keys])
        inside = np.arange(stage.shape[1])[None, :] < pps[:, None]
        pipeline = (micro - 1.0) * stage.max(axis=1) + np.where(inside, stage, 0.0).sum(axis=1)
        busy = times.step_s - times.parts["other"]
        stretch = (times.step_s - case.stack.host.step_overhead_s) / busy
        *_, embedding, head = (unit.total for unit in times.units)
        return {
            key: _WayFacts(*map(float, row))
            for key, *row in zip(keys, busy - pipeline, stretch, embedding, head, strict=True)
        }

    def _exact(self, at_once: int, ways: Sequence[_Way], own: Sequence["_WayFacts"], order: Sequence[int]) -> float:
        first, last = order[0], order[-1]
        micro = self.parts[0].case.job.global_batch / at_once
        crossing = self.link.seconds(self._boundary_bytes(at_once))
        ends = ((ways[first], own[first].embedding_s), (ways[last], own[last].head_s))
        pace = _least_pace(self.layers, ways, ends)
        total = self.layers * min(way.layer_s for way in ways) + sum(seconds for _, seconds in ends)
        once = max(each.once_s for each in own) + 2.0 * (len(ways) - 1) * crossing
        busy = (micro - 1.0) * max(pace, crossing) + total + once
        return self.weight * max(each.stretch for each in own) * busy * (1.0 - ROUNDING)

    def _ways(self, place: int, at_once: int) -> list[_Way]:
        """Of one part, for so many sequences at a time."""
        case = self.parts[place].case
        model, gpus, node = case.model, case.cluster.gpus, case.cluster.node_size
        tried = [
            (stages, tp, gpus // stages // tp)
            for stages in divisors(gpus) if stages <= min(MOST_STAGES, model.layers)
            for tp in divisors(gpus // stages) if tp <= node
        ]  # fmt: skip
        legal = [
            (stages, tp, dp) for stages, tp, dp in tried
            if at_once % dp == 0 and at_once // dp <= MOST_MICRO
            and not split_refusal(model, case.job, self._policy(place, stages, tp, dp, at_once))
        ]  # fmt: skip
        if not legal:
            return []
        rows = Policies.of([self._policy(place, stages, tp, dp, at_once) for stages, tp, dp in legal])
        times = estimate(case, rows).times
        each = np.stack([times.units[kind].total for kind in range(len(model.kinds))]).min(axis=0)
        busy = times.step_s - times.parts["other"]
        stretch = np.maximum((times.step_s - case.stack.host.step_overhead_s) / busy, 1.0)
        return [_Way(*way, float(s), float(w)) for way, s, w in zip(legal, each, stretch, strict=True)]

    def _policy(self, place: int, pp: int, tp: int, dp: int, at_once: int) -> Policy:
        stack = self.parts[place].case.stack
        policy = Policy(
            pp=pp, tp=tp, dp=dp, micro_batch=max(at_once // dp, 1), sp=tp > 1, schedule=SCHEDULE,
            zero=min(max(stack.abilities.zero), stack.abilities.zero_with_stages, 1),
        )  # fmt: skip
        return stack.overlapping(policy)

    def _boundary_bytes(self, at_once: int) -> float:
        model, job = self.parts[0].case.model, self.parts[0].case.job
        return float(at_once) * job.seq * model.streams * model.hidden * element_bytes(job.precision)

    def _least(self, at_once: int, ways: Sequence[_Way]) -> float:
        """Layers where they are fastest, no stage longer than another, the link no slower than it is."""
        case = self.parts[0].case
        micro = case.job.global_batch / at_once
        pace = _least_pace(self.layers, ways)
        crossing = self.link.seconds(self._boundary_bytes(at_once))
        total = self.layers * min(way.layer_s for way in ways) + 2.0 * (len(ways) - 1) * crossing
        stretch = max(way.stretch for way in ways)
        return self.weight * stretch * ((micro - 1.0) * max(pace, crossing) + total) * (1.0 - ROUNDING)

    def _line(self, least: float, at_once: int, ways: Sequence[_Way], order: Sequence[int]) -> Line:
        pp = sum(way.stages for way in ways)
        first = ways[order[0]]
        return Line(
            self._policy(order[0], pp, first.tp, first.dp, at_once), least,
            lambda: self._stages(at_once, ways, order), pp=pp, layers=self.layers, weight=self.weight,
            parts=tuple(self.parts[place].case.cluster.name for place in order),
            what=", ".join(f"{ways[place].stages} stage{'s' if ways[place].stages > 1 else ''} on "
                           f"{self.parts[place].case.cluster.name} with tp {ways[place].tp}" for place in order),
        )  # fmt: skip

    def _stages(self, at_once: int, ways: Sequence[_Way], order: Sequence[int]) -> StageProblem:
        pp = sum(way.stages for way in ways)
        owner = [place for place in order for _ in range(ways[place].stages)]
        found = [self._table(place, self._policy(place, pp, ways[place].tp, ways[place].dp, at_once))
                 for place in order]  # fmt: skip
        crossing = self.link.seconds(self._boundary_bytes(at_once))
        options, tables = [], []
        for place, (table, whole) in zip(order, found, strict=True):
            own = self._policy(place, pp, ways[place].tp, ways[place].dp, at_once)
            micro = float(whole.work.layout.micro_batches[0])
            share = idle_share(whole, own)
            # a micro-batch that fills or drains the pipeline waits for every crossing, both ways
            once = once_seconds(whole, own) + share * 2.0 * (len(ways) - 1) * crossing
            options.append(
                StageOption(0, self.parts[place].case.cluster.name, own, self.parts[place].limit_bytes, once)
            )
            mine = np.array([each == place for each in owner])[:, None, None]
            tables.append((_only(table[0], mine), table[1]))
        wholes = [whole for _, whole in found]
        return StageProblem(
            options=tuple(options), group_stages=(pp,), pattern=tuple(self.parts[0].case.model.pattern),
            micro_batches=micro, share=share, stretch=max(map(stretch_of, wholes)),
            overhead_s=max(whole.work.stack.host.step_overhead_s for whole in wholes), mixes=MIXES,
            slowest_least_s=crossing, **joined_tables(tables),
            even=(
                _by_speed(self.layers, [1.0 / ways[place].layer_s for place in owner]),
                tuple(list(order).index(place) for place in owner),
            ),
        )  # fmt: skip

    def _table(self, place: int, policy: Policy) -> tuple[tuple[Segments, Ints], Estimate]:
        """Orders of the parts share them."""
        key = (place, policy)
        if key not in self._tables:
            part = self.parts[place]
            table = best_segments(part.case, policy, part.limit_bytes, MIXES)
            self._tables[key] = table, estimate(part.case, Policies.of([policy]), every_stage=True)
        return self._tables[key]


def _least_pace(layers: int, ways: Sequence[_Way], ends: Sequence[tuple[_Way, float]] = ()) -> float:
    """The shortest slowest stage that lets all stages together hold all layers, each a whole number of them. `ends`:
    whose stages also hold the embedding and the head, and what those take."""
    busy = {0.0, *(seconds for _, seconds in ends)}
    paces = sorted({more + count * way.layer_s for more in busy for way in ways for count in range(layers + 1)})

    def held(pace: float) -> int:
        found = sum(way.stages * int(pace / way.layer_s + ROUNDING) for way in ways)
        for way, seconds in ends:
            if seconds > pace:
                return -1
            found -= int(pace / way.layer_s + ROUNDING) - int((pace - seconds) / way.layer_s + ROUNDING)
        return found

    place = bisect_left(paces, layers, key=held)
    return paces[min(place, len(paces) - 1)]


def _only(table: Segments, mine: Floats) -> Segments:
    """Of the stages that are this part's."""
    return Segments(np.where(mine, table.seconds, np.inf), table.any_seconds, table.recomputed, table.bytes)


def _by_speed(layers: int, speeds: Sequence[float]) -> tuple[int, ...]:
    """Layers of each stage in proportion to how fast it is, at least one each where there are enough."""
    least = 1 if layers >= len(speeds) else 0
    share = np.array(speeds) / sum(speeds) * (layers - least * len(speeds))
    counts = np.floor(share).astype(np.int64)
    counts[np.argsort(counts - share, kind="stable")[: layers - least * len(speeds) - int(counts.sum())]] += 1
    return tuple((counts + least).tolist())


def shares_of(total: int, rates: Sequence[float], unit: int) -> Iterator[tuple[int, ...]]:
    """Sequences of each part in proportion to its rate, in whole units, the nearest first."""
    whole = total // unit
    exact = np.array(rates) / sum(rates) * whole
    base = np.maximum(np.floor(exact).astype(np.int64), 1)
    left = whole - int(base.sum())
    for shift in range(len(rates)):
        found = base.copy()
        order = np.roll(np.argsort(base - exact, kind="stable"), -shift)
        for place in order[: max(left, 0)]:
            found[place] += 1
        if int(found.sum()) == whole and (found > 0).all():
            yield tuple((found * unit).tolist())
