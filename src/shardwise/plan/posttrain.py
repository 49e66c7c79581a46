"""Who rolls out and who trains: every split of the GPUs, engine width, memory share and lag, priced and ranked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwise.cost.calibrate.profile import Profile
from shardwise.plan.constraints import Constraint, constraints_of
from shardwise.plan.exhaustive import HEADROOM, scan
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Optimizer, Precision
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.software import Stack
from shardwise.step.estimate.chance import out_of_memory_chance
from shardwise.step.posttrain.facts import ProgramFacts
from shardwise.step.posttrain.job import PosttrainJob
from shardwise.step.posttrain.phases import (
    ASLEEP_BYTES,
    COLOCATED,
    SPLIT,
    PosttrainPhases,
    RolloutPrice,
    Sides,
    idle_share,
    phases_of,
    rollout_price,
)
from shardwise.step.posttrain.trainer import TrainerPrice, case_with, packed_micro, priced
from shardwise.work.case import Case, driven_network

PLAIN = "vpp=1"
"""trainers of sequences that differ in length run no interleaved pipeline"""
EIGHTHS = (1, 2, 3, 4, 5, 6, 7)
"""parts of the GPUs that may roll out in a split layout"""
WIDTHS = (1, 2, 4, 8, 16, 32)
"""GPUs of an engine"""
SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""of memory for a colocated engine"""
STALE = 0.05
"""what a step of lag must shorten the step by to be taken: older answers train a little worse, and how much nobody can
say beforehand. Stated, not measured"""
RISKY = 0.05
"""chance of running out of memory above which another layout is taken"""


@dataclass(frozen=True, kw_only=True)
class PosttrainSpace:
    model: Model
    cluster: Cluster
    job: PosttrainJob
    program: ProgramFacts
    stack: Stack
    """of the trainer"""
    precision: Precision
    optimizer: Optimizer
    rollout_precision: str = "bf16"
    rollout_cluster: Cluster | None = None
    """of a mixed cluster: other GPUs that only roll out; None: the cluster's own do"""
    modes: tuple[str, ...] = (COLOCATED, SPLIT)
    lags: tuple[int, ...] = (0, 1, 2, 4)
    rollout_gpus: int | None = None
    widths: tuple[int, ...] = WIDTHS
    share: float | None = None
    only: tuple[Constraint, ...] = ()
    """of the trainer's policy"""
    headroom: float = HEADROOM
    profile: Profile | None = None


@dataclass(frozen=True)
class PosttrainLayout:
    """One way to run the step, priced."""

    rollout: RolloutPrice
    trainer: TrainerPrice
    phases: PosttrainPhases
    idle: float
    risk: float
    """of running out of memory in the update"""

    @property
    def sides(self) -> Sides:
        return self.rollout.sides

    @property
    def step_s(self) -> float:
        return self.phases.step_s


@dataclass(frozen=True)
class PosttrainRanking:
    layouts: tuple[PosttrainLayout, ...]
    """by step time"""
    why_none: tuple[str, ...]
    """kinds of layout that cannot run, each with its reason"""

    @cached_property
    def recommended(self) -> PosttrainLayout | None:
        """The fastest, each step of lag counted as so much longer a step."""
        return min(
            self.layouts,
            default=None,
            key=lambda each: (each.risk > RISKY, each.step_s * (1.0 + STALE * each.sides.lag)),
        )

    def best(self, mode: str, lag: int | None = None) -> PosttrainLayout | None:
        return next((each for each in self.layouts if each.sides.mode == mode and lag in (None, each.sides.lag)), None)


def posttrain_layouts(space: PosttrainSpace) -> PosttrainRanking:
    found: list[PosttrainLayout] = []
    reasons: dict[str, str] = {}
    network = driven_network(space.rollout_cluster or space.cluster, space.stack)
    for mode, rollout_gpus, train_gpus in _splits(space):
        kind = mode if mode == COLOCATED else f"{rollout_gpus} + {train_gpus}"
        trainer = _trainer(space, mode, train_gpus)
        if isinstance(trainer, str):
            reasons[kind] = trainer
            continue
        case, price = trainer
        for sides in _engines(space, mode, rollout_gpus, train_gpus, price):
            try:
                rollout = rollout_price(
                    space.model, space.rollout_cluster or space.cluster, network, space.job, space.program, sides
                )
            except ValueError as error:
                reasons.setdefault(kind, str(error))
                continue
            phases = phases_of(space.job, space.program, rollout, price)
            asleep = ASLEEP_BYTES if mode == COLOCATED else 0.0
            risk = float(out_of_memory_chance(case, np.array([price.peak_bytes + asleep]))[0])
            found.append(PosttrainLayout(rollout, price, phases, idle_share(phases, rollout), risk))
        if any(each.sides.train_gpus == train_gpus and each.sides.mode == mode for each in found):
            reasons.pop(kind, None)
    return PosttrainRanking(tuple(sorted(found, key=lambda each: each.step_s)), tuple(
        f"{kind}: {why}" for kind, why in reasons.items()
    ))  # fmt: skip


def _splits(space: PosttrainSpace) -> Iterator[tuple[str, int, int]]:
    gpus = space.cluster.gpus
    if space.rollout_cluster is not None:
        yield SPLIT, space.rollout_cluster.gpus, gpus
        return
    if COLOCATED in space.modes and space.program.colocated_share > 0:
        yield COLOCATED, gpus, gpus
    if SPLIT not in space.modes or not space.job.rule.rolls_out:
        return
    if space.rollout_gpus is not None:
        yield SPLIT, space.rollout_gpus, gpus - space.rollout_gpus
        return
    node = min(space.cluster.node_size, 8)
    for part in EIGHTHS:
        rollout = gpus * part // 8
        whole = rollout % node == 0 if gpus > node else True
        if 0 < rollout < gpus and gpus * part % 8 == 0 and whole:
            yield SPLIT, rollout, gpus - rollout


def _trainer(space: PosttrainSpace, mode: str, gpus: int) -> tuple[Case, TrainerPrice] | str:
    """The policy that updates fastest inside the memory that the other side leaves, or why there is none."""
    cluster = _part(space.cluster, gpus)
    batch = -(-space.job.sequences // space.job.updates)
    ranks = gpus if batch >= gpus else gpus // (gpus & -gpus)
    micro = packed_micro(space.job)
    case = case_with(
        space.model, cluster, space.job, space.stack, space.precision, space.optimizer, ranks * micro, space.profile
    )
    asleep = ASLEEP_BYTES / cluster.gpu.memory_bytes if mode == COLOCATED else 0.0
    stated = {each.field for each in space.only}
    usual = [] if "micro_batch" in stated else [f"micro={micro}"]
    only = (*space.only, *constraints_of([PLAIN, *usual]))
    ranked = scan(case, top=1, losers=False, only=only, headroom=space.headroom - asleep)
    chosen = ranked.recommended
    if chosen is None:
        least = ranked.smallest
        if least is None:
            return f"no legal policy trains on {gpus} GPUs"
        return f"training takes {least.peak_bytes / 2**30:.1f} GiB a GPU at least"
    return case, priced(case, space.job, chosen.policy)


def _part(cluster: Cluster, gpus: int) -> Cluster:
    """So many GPUs of the same fabric."""
    if gpus == cluster.gpus:
        return cluster
    name, sign, _ = cluster.name.rpartition(":")
    if sign:
        return cluster_of(f"{name}:{gpus}")
    node = cluster.node_size
    whole = f"{gpus // node}x{node}x" if gpus > node and gpus % node == 0 else f"{gpus}x"
    return cluster_of(f"{whole}{cluster.gpu.name}")


def _engines(
    space: PosttrainSpace, mode: str, rollout_gpus: int, train_gpus: int, trainer: TrainerPrice
) -> Iterator[Sides]:
    kv = max((kind.attention.heads for kind in space.model.kinds if kind.attention), default=1)
    widths = [tp for tp in space.widths if rollout_gpus % tp == 0 and tp <= rollout_gpus and kv % tp == 0]
    cluster = space.rollout_cluster or space.cluster
    for tp in widths:
        if tp > max(cluster.node_size, 8) and tp != min(widths, key=lambda width: abs(width - 2 * cluster.node_size)):
            continue
        for lag in _lags(space, mode):
            share = space.share or _share(space, mode, trainer, cluster)
            yield Sides(
                mode=mode, rollout_gpus=rollout_gpus, train_gpus=train_gpus, tp=tp, share=share, lag=lag,
                precision=space.rollout_precision,
            )  # fmt: skip


def _lags(space: PosttrainSpace, mode: str) -> Sequence[int]:
    return [lag for lag in space.lags if (lag == 0 if mode == COLOCATED else lag > 0)]


def _share(space: PosttrainSpace, mode: str, trainer: TrainerPrice, cluster: Cluster) -> float:
    """The most that the engine may fill: beside the trainer's state where that stays on the GPU."""
    if mode == SPLIT:
        return space.program.split_share
    if space.program.offloads:
        return space.program.colocated_share
    free = space.headroom - trainer.state_bytes / cluster.gpu.memory_bytes
    return max((share for share in SHARES if share <= free), default=SHARES[0])
