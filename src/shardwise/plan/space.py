"""Every legal policy of a model, cluster and job.

A policy is a *frame* (degrees, micro-batch, schedule, order on the fabric: what a layer computes and where) with
*settings* (ZeRO, its group, recompute, offload, overlap: what is kept where, and what waits for what). Frames are
listed; settings are a product, so a space of 10^8 policies is a table of some 10^4 frames and a few short lists.

Degrees are divisors of the number of GPUs, so that every point uses all of them; `Limits` leaves out what has never
been worth it (tensor parallelism over many nodes, micro-batches of hundreds of sequences).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import ceil

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shardwise.arrays import Flags, Ints
from shardwise.plan.constraints import Constraint, allowed
from shardwise.plugins.pipeline import needs, schedule_names, schedules_named
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.matrices import BLOCKWISE, alike_layouts, may_share
from shardwise.spec.model import Model
from shardwise.spec.policy import (
    DEGREES,
    FRAME,
    LOSS,
    OFFLOAD,
    ORDERS,
    OVERLAPS,
    RECOMPUTE,
    ZERO,
    Policies,
    Policy,
    choices,
    encoded,
)
from shardwise.spec.rules import SHARED_MATRICES, context_divides, divisors, legal
from shardwise.spec.software import Stack
from shardwise.spec.software.limits import LIMITS, limits_of, runs
from shardwise.work.case import Case
from shardwise.work.context_parallel import whole_heads

NONE, SELECTIVE, FULL = range(len(RECOMPUTE))
ALL_LAYERS = -1
MOST_CHUNKS = 1 << 20
SPLIT = DEGREES[:-1]
"""axes that a program's limits ask about"""


class Limits(Struct, frozen=True, kw_only=True):
    nodes_of_tp: int = 2
    """tensor parallelism spans at most this many fast domains: every layer waits for its collectives"""
    tp: int = 64
    least_local_seq: int = 1024
    """context parallelism leaves each rank at least this many tokens of a sequence"""
    micro_batch: int = 16
    """largest; only powers of two"""
    vpp: int = 16
    schedules: tuple[str, ...] = ()
    """none named: those the stack has"""
    zero: tuple[int, ...] = ()
    """none named: those the stack has"""
    zero_with_stages: int | None = None
    """highest ZeRO stage together with pipeline stages; None: the stack's"""
    recompute: tuple[str, ...] = ()
    """none named: what the stack has"""
    some_layers: bool = True
    """full recompute of the first k layers of each stage too, for every k"""
    offload: tuple[str, ...] = ()
    """none named: those the stack has"""
    offload_share: float = 1.0
    """of what is offloaded"""
    recompute_modules: tuple[str, ...] = ()
    """what selective recompute repeats, which is then the only one; none named: what the program repeats"""
    loss: str = ""
    """empty: the program's own"""
    orders: tuple[str, ...] = ORDERS
    shard_groups: bool = True
    """ZeRO over every part of the data-parallel ranks too (HSDP), not only over all of them"""
    replicas: bool = False
    """ZeRO over a part of the ranks only, so that every shard has copies"""


@dataclass(frozen=True)
class Settings:
    """The values each setting may take; where a frame allows fewer, `Space` says so."""

    zero: tuple[int, ...]
    zero_with_stages: int
    recompute: tuple[int, ...]
    layers: tuple[Constraint, ...] | None
    """what the user asks of the number of recomputed layers; None: full recompute is of all layers"""
    offload: tuple[int, ...]
    overlaps: dict[str, tuple[int, ...]]
    """the better value first"""
    groups: tuple[Constraint, ...] | None
    """what the user asks of the ZeRO group; None: it is all ranks"""
    replicas: bool
    """never all ranks"""
    layouts: tuple[int, ...] = (0,)
    """of matrices that an optimizer updates whole; the first, the program's own, stands for runs that share none"""
    limits: tuple[str, ...] = ()
    """names of what the program cannot run, but for fields of which the user asks for one value by name"""

    def limits_on(self, *fields: str) -> list[str]:
        return [name for name in self.limits if LIMITS[name].field in fields]

    @property
    def switches(self) -> Iterator[dict[str, int]]:
        """What may be offloaded and overlapped together."""
        for offload, *values in product(self.offload, *self.overlaps.values()):
            yield {"offload": offload, **dict(zip(self.overlaps, values, strict=True))}

    @property
    def whole(self) -> tuple[int, ...]:
        """Recompute of all layers of a stage, or of none."""
        return tuple(r for r in self.recompute if all(c.accepts(ALL_LAYERS) for c in self.layers or ()))


@dataclass(frozen=True)
class Space:
    frames: Policies
    """legal ones, each with the first value of every setting"""
    settings: Settings
    layers: int
    """of the model"""
    grid: int
    """frames before the rules"""

    def runs(self, policies: Policies) -> Flags:
        """What the program runs as it stands."""
        return runs(self.settings.limits, policies)

    def sharding(self, frame: int) -> tuple[tuple[int, int], ...]:
        """(ZeRO stage, its group) the frame may have; a group of 0 is all ranks, and comes first."""
        dp, cp, settings = int(self.frames.dp[frame]), int(self.frames.cp[frame]), self.settings
        ways = _sharding(dp * cp, self._zero(bool(self.frames.pp[frame] > 1)), settings.groups, settings.replicas)
        layout = int(self.frames.matrix_layout[frame])
        if settings.layouts != (0,) and layout != BLOCKWISE and dp * cp > 1:
            ways = tuple(way for way in ways if (way[0] > 0) == (layout > 0))
        of_groups = settings.limits_on("shard_group")
        if not of_groups or not ways:
            return ways
        zero, group = np.array(ways, dtype=np.int64).T
        same = np.ones_like(zero)
        ok = runs(of_groups, Policies.columns(len(ways), dp=dp * same, cp=cp * same, zero=zero, shard_group=group))
        return tuple(way for way, allowed in zip(ways, ok, strict=True) if allowed)

    def shardings(self, frames: Ints) -> Ints:
        """Rows of (place among these frames, ZeRO stage, its group), frame by frame."""
        columns = (self.frames.dp, self.frames.cp, self.frames.pp > 1, self.frames.matrix_layout)
        keys = np.stack([column[frames] for column in columns], axis=1)
        _, one, kind = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        kind = kind.reshape(-1)
        ways = [np.array(self.sharding(int(frames[i])), dtype=np.int64).reshape(-1, 2) for i in one]
        place = np.repeat(np.arange(len(frames)), np.array([len(each) for each in ways], dtype=np.int64)[kind])
        return np.column_stack([place, np.concatenate([np.empty((0, 2), dtype=np.int64), *(ways[k] for k in kind)])])

    def _zero(self, stages: bool) -> tuple[int, ...]:
        return tuple(z for z in self.settings.zero if not stages or z <= self.settings.zero_with_stages)

    def some_layers(self, frame: int) -> tuple[int, ...]:
        """Numbers of layers of each stage that may recompute, short of all."""
        return _some_layers(
            int(-(-self.layers // self.frames.pp[frame])), int(self.chunks_counted[frame]), self.settings.layers
        )

    @cached_property
    def chunks_counted(self) -> Ints:
        """Numbers of layers that recompute are multiples of so many."""
        by_chunk = "layers-by-chunk" in self.settings.limits
        return self.frames.vpp if by_chunk else np.ones_like(self.frames.vpp)

    def numbers_of_layers(self, frames: Ints) -> tuple[Ints, Ints]:
        """(the same of many frames, one row each, filled up with 0; how many each has)."""
        keys = (2 * self.layers + 3) * self.frames.pp[frames] + self.chunks_counted[frames]
        _, one, kind = np.unique(keys, return_index=True, return_inverse=True)
        found = [self.some_layers(int(frames[i])) for i in one]
        counts = np.array([len(each) for each in found], dtype=np.int64)
        table = np.zeros((len(found), counts.max(initial=0)), dtype=np.int64)
        for row, each in zip(table, found, strict=True):
            row[: len(each)] = each
        return table[kind], counts[kind]

    @property
    def points(self) -> int:
        """Legal policies."""
        settings, stage = self.settings, -(-self.layers // self.frames.pp)
        repeated = len(settings.whole) + 0 * stage
        if FULL in settings.recompute:
            keys = stage * MOST_CHUNKS + self.chunks_counted
            repeated = repeated + _by_value(
                keys, lambda n: len(_some_layers(n // MOST_CHUNKS, n % MOST_CHUNKS, settings.layers))
            )
        place, zero, _ = self.shardings(np.arange(len(self.frames))).T
        alike, kind = _alike(self.frames)
        found = 0
        for level in settings.zero:
            given = replace(alike, zero=np.full(len(alike), level))
            able = np.zeros(len(alike), dtype=np.int64)
            for chosen in settings.switches:
                able += self.runs(replace(given, **{name: np.full(len(alike), v) for name, v in chosen.items()}))
            ways = np.bincount(place[zero == level], minlength=len(self.frames))
            found += int((ways * repeated * able[kind]).sum())
        return found


def _alike(frames: Policies) -> tuple[Policies, Ints]:
    """One frame of each kind that a program's limits can tell apart, and each frame's kind: they ask whether an axis is
    split, and of stages whether they are two."""
    clipped = {name: np.minimum(getattr(frames, name), 3 if name == "pp" else 2) for name in SPLIT}
    columns = np.stack([*clipped.values(), frames.sp], axis=1)
    distinct, kind = np.unique(columns, axis=0, return_inverse=True)
    names = (*clipped, "sp")
    return Policies.columns(len(distinct), **dict(zip(names, distinct.T, strict=True))), kind.reshape(-1)


def space(case: Case, limits: Limits | None = None, only: Iterable[Constraint] = ()) -> Space:
    """`only` leaves out what the user does not allow."""
    model, cluster, job, stack = case.model, case.cluster, case.job, case.stack
    bounds, asked = limits or Limits(), tuple(only)
    settings, fixed = _settings(stack, job, bounds, asked), _fixed(bounds)
    degrees = _degrees(model, cluster, job, bounds)
    named = {c.field for c in asked}
    known = schedule_names() if "schedule" in named else schedules_named(stack.abilities.schedules)
    codes = [schedule_names().index(name) for name in bounds.schedules or known]
    # examples are single rows of a product, pictures short sequences: all of a rank's may go at once
    largest_micro = bounds.micro_batch if model.inputs == "tokens" or limits is not None else job.global_batch
    per_degree = _product(
        [m for m in _powers(largest_micro) if job.global_batch % m == 0 or job.uneven],
        codes,
        [1, 0],
        [ORDERS.index(order) for order in bounds.orders],
        list(range(1, len(LOSS))) if "loss" in named else [LOSS.index(fixed.loss)],
        list(settings.layouts),
    )
    left, right = np.repeat(degrees, len(per_degree), axis=0), np.tile(per_degree, (len(degrees), 1))
    tp, pp, cp, vpp, ep, etp = left.T
    micro, schedule, sp, order, loss, matrix_layout = right.T
    size = len(left)
    frames = Policies.columns(
        size, tp=tp, pp=pp, cp=cp, vpp=vpp, ep=ep, etp=etp, micro_batch=micro, schedule=schedule, sp=sp, order=order,
        loss=loss, matrix_layout=matrix_layout,
        **{name: np.full(size, encoded(fixed, name)) for name in ("recompute_modules", "offload_share")},
        dp=cluster.gpus // np.maximum(tp * pp * cp, 1), zero=np.full(size, settings.zero[0]),
        recompute=np.full(size, settings.recompute[0]), offload=np.full(size, settings.offload[0]),
        **{name: np.full(size, values[0]) for name, values in settings.overlaps.items()},
    )  # fmt: skip
    ok = _once_each(frames, _plain(codes)) & allowed(frames, [c for c in asked if c.field in FRAME])
    frames = frames.take(np.flatnonzero(ok & runs(settings.limits_on(*FRAME), frames)))
    frames = frames.take(np.flatnonzero(whole_heads(model, case.stack, frames.tp, frames.cp)))
    frames = _overlapping(frames, settings)
    # the ZeRO stages of a layout are chosen where they are listed
    able = legal(model, cluster, job, frames, skip=(SHARED_MATRICES,)) & may_share(frames)
    return Space(frames.take(np.flatnonzero(able)), settings, model.layers, size)


def _overlapping(frames: Policies, settings: Settings) -> Policies:
    """With the best overlaps that the program has for each frame in place of those that it cannot run."""
    shared = replace(frames, zero=np.ones_like(frames.zero))
    for limit in limits_of(settings.limits_on(*settings.overlaps)):
        other = settings.overlaps[limit.field][-1]
        column = np.where(limit.broken(shared), other, getattr(shared, limit.field))
        shared = replace(shared, **{limit.field: column})
    return replace(shared, zero=frames.zero)


def _fixed(bounds: Limits) -> Policy:
    """What every policy has alike; a value that none can have is refused here."""
    again = RECOMPUTE[SELECTIVE if bounds.recompute_modules else NONE]
    return Policy(
        recompute=again, recompute_modules=bounds.recompute_modules, offload_share=bounds.offload_share,
        loss=bounds.loss,
    )  # fmt: skip


def _layouts(job: Job, asked: Sequence[Constraint]) -> tuple[int, ...]:
    """One that is named, or those that train alike."""
    mine = [c for c in asked if c.field == "matrix_layout"]
    alike = (code for code in alike_layouts(job) if not code or all(c.accepts(code) for c in mine))
    return tuple(c.value for c in mine if c.compare == "=") or tuple(alike)


def _settings(stack: Stack, job: Job, bounds: Limits, asked: Sequence[Constraint]) -> Settings:
    def kept(field: str, values: Iterable[int]) -> tuple[int, ...]:
        mine = [c for c in asked if c.field == field]
        tried = tuple(values)
        found = tuple(v for v in tried if all(c.accepts(v) for c in mine))
        if not found:
            names = ", ".join(choices()[field][v] if field in choices() else str(v) for v in tried)
            raise ValueError(
                f"policy: nothing in the space has {', '.join(c.text for c in mine)}; write one of {names}"
            )
        return found

    named, able = {c.field for c in asked}, stack.abilities
    recomputes = bounds.recompute or (RECOMPUTE if "recompute" in named else stack.abilities.recompute)
    if bounds.recompute_modules:
        recomputes = (RECOMPUTE[SELECTIVE],)
    recompute = kept("recompute", (RECOMPUTE.index(name) for name in recomputes))
    layers = tuple(c for c in asked if c.field == "recompute_layers")
    groups = tuple(c for c in asked if c.field == "shard_group")
    wanted = {c.field for c in asked if c.compare == "="}
    some = bounds.some_layers and "all-layers-or-none" not in able.limits
    return Settings(
        zero=kept("zero", bounds.zero or (ZERO if "zero" in named else stack.abilities.zero)),
        zero_with_stages=_first(bounds.zero_with_stages, max(ZERO) if "zero" in named else able.zero_with_stages),
        recompute=recompute,
        # who asks for full recompute by name means all layers, unless they say how many
        layers=layers if layers or (some and "recompute" not in named) else None,
        offload=kept(
            "offload",
            (OFFLOAD.index(name) for name in bounds.offload or (OFFLOAD if "offload" in named else able.offload)),
        ),
        overlaps={name: kept(name, (1, 0) if stack.setting(name) else (0,)) for name in OVERLAPS},
        groups=groups if groups or bounds.shard_groups else None,
        replicas=bounds.replicas,
        layouts=_layouts(job, asked),
        limits=tuple(name for name in able.limits if limits_of([name])[0].field not in wanted),
    )


@lru_cache(maxsize=4096)
def _sharding(
    ranks: int, zero: tuple[int, ...], asked: tuple[Constraint, ...] | None, replicas: bool
) -> tuple[tuple[int, int], ...]:
    """Where no two ranks hold the same, every ZeRO stage is the same run."""
    parts = (0, *(d for d in reversed(divisors(ranks)) if 1 < d < ranks)) if asked is not None else (0,)
    stages = zero if ranks > 1 else zero[:1]
    found = ((z, g) for z in stages for g in (parts if z and ranks > 1 else (0,)))
    kept = ((z, g) for z, g in found if g or not (z and replicas))
    return tuple((z, g) for z, g in kept if all(c.accepts(g) for c in asked or ()))


@lru_cache(maxsize=4096)
def _some_layers(stage: int, chunks: int, asked: tuple[Constraint, ...] | None) -> tuple[int, ...]:
    return () if asked is None else tuple(k for k in range(chunks, stage, chunks) if all(c.accepts(k) for c in asked))


def _first(stated: int | None, otherwise: int) -> int:
    return otherwise if stated is None else stated


def _plain(codes: Sequence[int]) -> int:
    """The schedule that stands for a run without stages, where all are the same."""
    return next((code for code in codes if needs()[schedule_names()[code]].met(1, 1, 1)), codes[0])


def _once_each(p: Policies, first_schedule: int) -> NDArray[np.bool_]:
    """No two frames that are the same run: what a degree of 1 leaves without meaning has its first value."""
    cp, dp, pp = p.cp > 1, p.dp > 1, p.pp > 1
    matters = np.stack([cp | ~cp, cp & dp, pp & (cp | dp), pp & cp & dp])
    schedule = pp | (p.schedule == first_schedule)
    return np.asarray(matters[p.order, np.arange(len(p))] & schedule & ((p.tp > 1) | (p.sp == 0)))


def _degrees(model: Model, cluster: Cluster, job: Job, bounds: Limits) -> Ints:
    """Rows of (tp, pp, cp, vpp, ep, etp) that use every GPU and give each chunk a layer."""
    gpus = divisors(cluster.gpus)
    most_tp = min(bounds.nodes_of_tp * cluster.node_size, bounds.tp)
    cps = [d for d in gpus if context_divides(job.seq, d) and (d == 1 or job.seq // d >= bounds.least_local_seq)]
    rows = _product(
        [d for d in gpus if d <= most_tp], [d for d in gpus if d <= max(model.layers, 1)], cps,
        list(range(1, bounds.vpp + 1)), _expert_degrees(model, cluster), [0, 1],
    )  # fmt: skip
    tp, pp, cp, vpp, ep, other = rows.T
    # equal chunks, where embedding and head may stand for a layer each (126 layers on 16 x 8 chunks)
    equal = (model.layers % (pp * vpp) == 0) | ((model.layers + 2) % (pp * vpp) == 0)
    chunks = (vpp == 1) | ((pp > 1) & equal)
    # experts are split as the rest of the layer (etp = tp) or not at all
    split = (other == 0) | ((tp > 1) & any(kind.experts for kind in model.kinds))
    rows[:, 5] = np.where(other == 0, 0, np.where(ep > 1, tp, 1))
    return np.asarray(rows[(cluster.gpus % (tp * pp * cp) == 0) & chunks & split])


def _expert_degrees(model: Model, cluster: Cluster) -> list[int]:
    counts = {kind.experts.count for kind in model.kinds if kind.experts}
    if not counts:
        return [1]
    return [d for d in divisors(min(counts)) if d <= cluster.gpus]


def _by_value(values: Ints, count: Callable[[int], int]) -> Ints:
    """`count` of each value, asked once for each that occurs."""
    distinct, place = np.unique(values, return_inverse=True)
    return np.asarray(np.array([count(int(v)) for v in distinct], dtype=np.int64)[place])


def _powers(most: int) -> list[int]:
    return [2**i for i in range(ceil(np.log2(most)) + 1) if 2**i <= most]


def _product(*axes: list[int]) -> Ints:
    grids = np.meshgrid(*(np.array(axis, dtype=np.int64) for axis in axes), indexing="ij")
    return np.stack([grid.ravel() for grid in grids], axis=1)
