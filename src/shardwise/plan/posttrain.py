"""Who rolls out and who trains: every split of the GPUs, engine width, memory share and lag, priced and ranked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwise.cost.calibrate.profile import Profile
from shardwise.plan.choice import RISK
from shardwise.plan.constraints import Constraint, constraints_of
from shardwise.plan.exhaustive import HEADROOM, scan
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Optimizer, Precision
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.software import Stack
from shardwise.step.estimate.chance import most_bytes, out_of_memory_chance
from shardwise.step.posttrain.engine import HOST_GPUS, MOST_HOST_GPUS, RolloutEngine
from shardwise.step.posttrain.facts import ProgramFacts, facts
from shardwise.step.posttrain.job import PosttrainJob
from shardwise.step.posttrain.phases import (
    COLOCATED,
    HYBRID,
    SPLIT,
    PosttrainPhases,
    RolloutPrice,
    Sides,
    beside_update_bytes,
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
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
"""GPUs of an engine"""
SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""of memory for a colocated engine"""
STALE = 0.05
"""what a step of lag must shorten the step by to be taken: older answers train a little worse, and how much nobody can
say beforehand. Stated, not measured"""


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
    modes: tuple[str, ...] = (COLOCATED, SPLIT, HYBRID)
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
            key=lambda each: (each.risk > RISK, each.step_s * (1.0 + STALE * each.sides.lag)),
        )

    def best(self, mode: str, lag: int | None = None) -> PosttrainLayout | None:
        return next((each for each in self.layouts if each.sides.mode == mode and lag in (None, each.sides.lag)), None)


def posttrain_layouts(space: PosttrainSpace) -> PosttrainRanking:
    found: list[PosttrainLayout] = []
    reasons: dict[str, str] = {}
    trainers: dict[tuple[bool, int], tuple[Case, TrainerPrice] | str] = {}
    network = driven_network(space.rollout_cluster or space.cluster, space.stack)
    for mode, rollout_gpus, train_gpus in _splits(space):
        kind = mode if mode == COLOCATED else f"{rollout_gpus} + {train_gpus}"
        key = (mode == SPLIT, train_gpus)
        if key not in trainers:
            trainers[key] = _trainer(space, mode, train_gpus)
        trainer = trainers[key]
        if isinstance(trainer, str):
            reasons[kind] = trainer
            continue
        case, price = trainer
        share, free = space.share or _share(space, mode, price), _free(space, mode, price)
        if share > free:
            reasons[kind] = f"engine: {share:.0%} of a GPU, but the trainer's state leaves {max(free, 0.0):.0%}"
            continue
        for sides in _engines(space, mode, rollout_gpus, train_gpus, share):
            try:
                rollout = rollout_price(
                    space.model, space.rollout_cluster or space.cluster, network, space.job, space.program, sides
                )
            except ValueError as error:
                reasons.setdefault(kind, str(error))
                continue
            phases = phases_of(space.job, space.program, rollout, price)
            beside = _beside(space, mode, sides.share)
            risk = float(out_of_memory_chance(case, np.array([price.peak_bytes + beside]))[0])
            found.append(PosttrainLayout(rollout, price, phases, idle_share(phases, rollout), risk))
        if any(each.sides.train_gpus == train_gpus and each.sides.mode == mode for each in found):
            reasons.pop(kind, None)
    if COLOCATED in space.modes and space.program.colocated_share == 0:
        reasons[COLOCATED] = "this program runs engine and trainer apart"
    return PosttrainRanking(tuple(sorted(found, key=lambda each: each.step_s)), tuple(
        f"{kind}: {why}" for kind, why in reasons.items()
    ))  # fmt: skip


def _splits(space: PosttrainSpace) -> Iterator[tuple[str, int, int]]:
    gpus, modes = space.cluster.gpus, space.modes
    if space.rollout_cluster is not None:
        yield SPLIT, space.rollout_cluster.gpus, gpus
        return
    if COLOCATED in modes and space.program.colocated_share > 0:
        yield COLOCATED, gpus, gpus
    if not space.job.rule.rolls_out:
        return
    for rollout in [space.rollout_gpus] if space.rollout_gpus is not None else _parts(space.cluster):
        yield from ((mode, rollout, gpus - rollout) for mode in (SPLIT, HYBRID) if mode in modes)


def _parts(cluster: Cluster) -> list[int]:
    """GPUs that may roll out in a split layout: whole hosts, near every eighth."""
    node = cluster.node_size
    unit = HOST_GPUS if node > MOST_HOST_GPUS else node if cluster.gpus > node else 1
    near = {round(cluster.gpus * part / 8 / unit) * unit for part in EIGHTHS}
    return sorted(gpus for gpus in near if 0 < gpus < cluster.gpus)


def _trainer(space: PosttrainSpace, mode: str, gpus: int) -> tuple[Case, TrainerPrice] | str:
    """The policy that updates fastest inside the memory that the other side leaves, or why there is none."""
    cluster = part_of_cluster(space.cluster, gpus)
    batch = -(-space.job.sequences // space.job.updates)
    ranks = gpus if batch >= gpus else gpus // (gpus & -gpus)
    micro = packed_micro(space.job)
    case = case_with(
        space.model, cluster, space.job, space.stack, space.precision, space.optimizer, ranks * micro, space.profile
    )
    beside = _beside(space, mode, space.share or space.program.colocated_share) / cluster.gpu.memory_bytes
    stated = {each.field for each in space.only}
    usual = [] if "micro_batch" in stated else [f"micro={micro}"]
    only = (*space.only, *constraints_of([PLAIN, *usual]))
    memory = cluster.gpu.memory_bytes
    room = min(space.headroom, most_bytes(case, RISK) / memory) - beside
    ranked = scan(case, top=1, losers=False, only=only, headroom=room)
    chosen = ranked.recommended
    if chosen is not None and space.job.rule.critic:
        room -= priced(case, space.job, chosen.policy).state_bytes / 2.0 / memory
        ranked = scan(case, top=1, losers=False, only=only, headroom=room) if room > 0 else ranked
        chosen = ranked.recommended if room > 0 else None
    if chosen is None:
        least = ranked.smallest
        if least is None or space.job.rule.critic:
            besides = " beside a critic of its size" if space.job.rule.critic else ""
            return f"no legal policy trains on {gpus} GPUs{besides}"
        return f"training takes {least.peak_bytes / 2**30:.1f} GiB a GPU at least"
    return case, priced(case, space.job, chosen.policy)


def part_of_cluster(cluster: Cluster, gpus: int) -> Cluster:
    """So many GPUs of the same fabric."""
    if gpus == cluster.gpus:
        return cluster
    name, sign, _ = cluster.name.rpartition(":")
    if sign:
        return cluster_of(f"{name}:{gpus}")
    node = cluster.node_size
    whole = f"{gpus // node}x{node}x" if gpus > node and gpus % node == 0 else f"{gpus}x"
    return cluster_of(f"{whole}{cluster.gpu.name}")


def _beside(space: PosttrainSpace, mode: str, share: float) -> float:
    engine = share * space.cluster.gpu.memory_bytes
    return beside_update_bytes(space.job, space.program, mode, engine)


def _engines(space: PosttrainSpace, mode: str, rollout_gpus: int, train_gpus: int, share: float) -> Iterator[Sides]:
    cluster = space.rollout_cluster or space.cluster
    for tp in _widths(space, cluster, rollout_gpus, share):
        for lag in _lags(space, mode):
            yield Sides(
                mode=mode, rollout_gpus=rollout_gpus, train_gpus=train_gpus, tp=tp, share=share, lag=lag,
                precision=space.rollout_precision,
            )  # fmt: skip


def _widths(space: PosttrainSpace, cluster: Cluster, gpus: int, share: float) -> list[int]:
    """Widths of an engine that leave room for a cache, over hosts only where one has none; else the widest, which says
    why nothing fits."""
    heads = max((kind.attention.heads for kind in space.model.kinds if kind.attention), default=1)
    legal = [tp for tp in space.widths if gpus % tp == 0 and heads % tp == 0]
    if not space.job.rule.rolls_out:
        return legal[:1]
    network, engines = driven_network(cluster, space.stack), facts().engines[space.program.engine]
    holding = [
        tp for tp in legal
        if RolloutEngine(space.model, cluster, network, engines, tp, space.rollout_precision)
        .sequences(share, space.job.mean_tokens) > 0
    ]  # fmt: skip
    inside = [tp for tp in holding if tp <= cluster.node_size]
    return inside or holding[:2] or legal[-1:]


def _lags(space: PosttrainSpace, mode: str) -> Sequence[int]:
    return [lag for lag in space.lags if (lag == 0 if mode == COLOCATED else lag > 0)]


def _free(space: PosttrainSpace, mode: str, trainer: TrainerPrice) -> float:
    """Share of a GPU that an engine may fill beside what stays there of the trainer."""
    stays = mode == COLOCATED and not space.program.offloads and space.job.rule.rolls_out
    return space.headroom - trainer.state_bytes / space.cluster.gpu.memory_bytes if stays else 1.0


def _share(space: PosttrainSpace, mode: str, trainer: TrainerPrice) -> float:
    """The most that the engine may fill, or what it fills all the time."""
    if mode != COLOCATED:
        return space.program.split_share
    if space.program.offloads or not space.program.sleeps:
        return space.program.colocated_share
    return max((share for share in SHARES if share <= _free(space, mode, trainer)), default=SHARES[0])
