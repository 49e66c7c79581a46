"""The lines of a cluster made of unlike parts: a pipeline through all of them, the stages of each part side by side.

Each part has its own number of stages, tensor parallelism and micro-batch; together they pass on the same sequences at a
time. Where two parts meet, activations go over a link of the user's: it is one more thing that paces the pipeline.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product

import numpy as np
from msgspec.structs import replace

from shardwise.case import Case
from shardwise.estimate.closed_form import Estimate, estimate
from shardwise.search.problems._contract import Floats, Ints
from shardwise.search.problems.joint._problem import Line
from shardwise.search.problems.stages import StageOption, StageProblem
from shardwise.search.problems.stages._build import best_segments, idle_share, joined_tables, once_seconds, stretch_of
from shardwise.simulate.segments import Segments
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import divisors, split_refusal
from shardwise.work.ops import element_bytes

MOST_STAGES = 16
"""of one part"""
MOST_MICRO = 16
MOST_WAYS = 200_000
MOST_BUILT = 96
"""ways whose stages may be worked out; the bounds of the others still count"""
SCHEDULE = "1f1b"
MIXES = (("none", "full"),)


@dataclass(frozen=True)
class Link:
    """Between two parts, all of it, each way."""

    bytes_per_s: float
    latency_s: float = 0.0

    def seconds(self, count: float) -> float:
        return count / self.bytes_per_s + self.latency_s


@dataclass(frozen=True)
class Part:
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


@dataclass
class PartLines:
    parts: tuple[Part, ...]
    link: Link
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
        lines, orders = list[Line](), list(permutations(range(len(self.parts))))
        for least, at_once, ways in found[: max(most // len(orders), 1)]:
            lines += [self._line(least, at_once, ways, order) for order in orders]
        rest = found[max(most // len(orders), 1)][0] if len(found) > max(most // len(orders), 1) else np.inf
        return lines, rest

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
        rows = Policies.of([self._policy(place, 2, tp, dp, at_once) for _, tp, dp in legal])
        units = estimate(case, rows).times.units
        each = np.stack([units[kind].total for kind in range(len(model.kinds))]).min(axis=0)
        return [_Way(*way, float(seconds)) for way, seconds in zip(legal, each, strict=True)]

    def _policy(self, place: int, pp: int, tp: int, dp: int, at_once: int) -> Policy:
        stack = self.parts[place].case.stack
        return Policy(
            pp=pp, tp=tp, dp=dp, micro_batch=max(at_once // dp, 1), sp=tp > 1, schedule=SCHEDULE,
            zero=min(max(stack.abilities.zero), stack.abilities.zero_with_stages, 1), **stack.overlaps,
        )  # fmt: skip

    def _boundary_bytes(self, at_once: int) -> float:
        model, job = self.parts[0].case.model, self.parts[0].case.job
        return float(at_once) * job.seq * model.streams * model.hidden * element_bytes(job.precision)

    def _least(self, at_once: int, ways: Sequence[_Way]) -> float:
        """Layers where they are fastest, no stage longer than another, the link no slower than it is."""
        case = self.parts[0].case
        micro = case.job.global_batch / at_once
        pace = self.layers / sum(way.stages / way.layer_s for way in ways)
        crossing = self.link.seconds(self._boundary_bytes(at_once))
        total = self.layers * min(way.layer_s for way in ways) + 2.0 * (len(ways) - 1) * crossing
        return self.weight * ((micro - 1.0) * max(pace, crossing) + total)

    def _line(self, least: float, at_once: int, ways: Sequence[_Way], order: Sequence[int]) -> Line:
        pp = sum(way.stages for way in ways)
        first = ways[order[0]]
        return Line(
            self._policy(order[0], pp, first.tp, first.dp, at_once), least,
            lambda: self._stages(at_once, ways, order), pp=pp, layers=self.layers, weight=self.weight,
            parts=tuple(self.parts[place].case.cluster.name for place in order),
            what=", ".join(f"{ways[place].stages} stages on {self.parts[place].case.cluster.name} with tp "
                           f"{ways[place].tp}" for place in order),
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
            share = idle_share(own, micro)
            # a micro-batch that fills or drains the pipeline waits for every crossing, both ways
            once = once_seconds(whole, own) + share * 2.0 * (len(ways) - 1) * crossing
            options.append(StageOption(0, self.parts[place].case.cluster.name, own, self.parts[place].limit_bytes, once))
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


def changed_batch(case: Case, sequences: int) -> Case:
    from dataclasses import replace as with_

    return with_(case, job=replace(case.job, global_batch=sequences))


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
