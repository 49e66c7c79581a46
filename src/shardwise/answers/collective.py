"""`collective`: one collective on one cluster - the data sheet's law, the time by fitted constants, each algorithm, and
the bytes that pass the switches of every level."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from shardwise.answers.answer import Answer, FactList, Part, shown, table
from shardwise.cost.ideal import ideal_bandwidths, ideal_seconds
from shardwise.cost.network import BUS, Network, network_of
from shardwise.cost.placement import level_members
from shardwise.measured.diagnose.expect import band_of
from shardwise.plugins.collectives import OPS, collectives
from shardwise.registry import closest
from shardwise.spec.cluster import Cluster, Level
from shardwise.units import decimal_text, time_text

LAWFUL = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
"""operations that have a textbook law"""


@dataclass(frozen=True)
class CollectiveQuestion:
    op: str
    bytes: float
    """of the whole array: of one rank's buffer in all_reduce and broadcast, of all ranks' together in the others"""
    cluster: Cluster
    inner: int = 1
    """ways in which an inner axis cuts the array already: groups of ranks that far apart, each with its part"""
    sharp: bool = False
    nvls: bool = True

    def __post_init__(self) -> None:
        if self.op not in OPS:
            raise ValueError(f"op: {self.op!r} is unknown; {closest(self.op, list(OPS))}")
        if not 1 <= self.inner <= self.cluster.gpus or self.cluster.gpus % self.inner:
            raise ValueError(f"inner: {self.inner} does not divide {self.cluster.gpus:,} GPUs; write a divisor of them")

    @property
    def ranks(self) -> int:
        return self.cluster.gpus // self.inner

    @property
    def part(self) -> float:
        """bytes that an algorithm counts, of one group"""
        each = self.bytes / self.inner
        return each / self.ranks if self.op == "all_to_all" else each

    @property
    def network(self) -> Network:
        return network_of(self.cluster, sharp=self.sharp, nvls=self.nvls)

    @property
    def levels(self) -> list[Level]:
        """Those that join something, as wide as the cluster is."""
        found, below = [], 1
        for level, block in zip(self.cluster.levels, self.cluster.blocks, strict=True):
            size = min(block, self.cluster.gpus)
            found.append(replace(level, degree=max(-(-size // below), 1), mesh=(), torus=()))
            below = size
        return found


class AlgorithmTime(Struct, frozen=True, kw_only=True):
    algorithm: Annotated[str, shown("algorithm")]
    seconds: Annotated[float, shown("time", "time")]
    latency_s: Annotated[float, shown("latency", "time")]
    """part of it that would stay with no bytes"""
    bus_bytes_per_s: Annotated[float | None, shown("bus GB/s", "GB/s")]
    level: Annotated[str, shown("slowest level")]
    """whose links set the rate"""
    automatic: Annotated[bool, shown("taken", "unasked")]
    """a communication library takes it unasked"""


class LevelBytes(Struct, frozen=True, kw_only=True):
    level: Annotated[str, shown("level")]
    gpus: Annotated[int, shown("GPUs", "thousands")]
    """under one switch, or one group of switches that act as one"""
    bytes_per_s: Annotated[float, shown("GB/s", "GB/s")]
    """of one GPU into the level, each way"""
    law_s: Annotated[float | None, shown("law", "time")]
    """the law's time for this level alone"""
    gpu_sends: Annotated[float, shown("GPU sends", "bytes")]
    """bytes of an average GPU into the level, with the algorithm taken"""
    passes: Annotated[float, shown("switch", "bytes")]
    """bytes through the switch, with the algorithm taken"""
    least_in: Annotated[float | None, shown("least in", "bytes")]
    """bytes into the switch where switches copy and add, so that no link carries anything twice"""
    least_out: Annotated[float | None, shown("least out", "bytes")]


class CollectiveAnswer(Answer, frozen=True, kw_only=True):
    op: str
    bytes: float
    cluster: str
    gpus: int
    ranks: int
    inner: int
    law_s: float | None
    """data-sheet bandwidth, no latency"""
    law_in_network_s: float | None
    """of an all_reduce that switches add"""
    law_level: str | None
    seconds: float
    """by fitted constants, of the algorithm that a library takes"""
    band: tuple[float, float]
    """measured over expected rate, less 1: 80 % of collectives on fabrics that were not fitted"""
    taken: str
    level: str
    """whose links set the rate"""
    algorithms: Sequence[AlgorithmTime]
    levels: Sequence[LevelBytes]

    def parts(self) -> Iterator[Part]:
        groups = f" in {self.inner:,} groups" if self.inner > 1 else ""
        yield FactList(f"{self.op} of {decimal_text(self.bytes)} over {self.gpus:,} GPUs{groups}, {self.cluster}", [
            ("data sheet", None if self.law_s is None else f"{time_text(self.law_s)}: level {self.law_level} binds"),
            ("", None if self.law_in_network_s is None else f"{time_text(self.law_in_network_s)} where switches add"),
            ("fitted", self._fitted()),
        ])  # fmt: skip
        yield table("algorithms, by fitted constants", self.algorithms, bars=("time",))
        yield table(f"levels; bytes with {self.taken}", self.levels)

    def _fitted(self) -> str:
        low, high = (time_text(self.seconds / (1 + edge)) for edge in reversed(self.band))
        binds = f"{time_text(self.seconds)} with {self.taken}: level {self.level} binds"
        return f"{binds}; 80% of measured ones between {low} and {high}"


ANSWERS = (CollectiveAnswer,)
SHARP = "sharp"
"""the algorithm of sums in the network's switches"""


def collective_answer(asked: CollectiveQuestion, notes: Sequence[str] = ()) -> CollectiveAnswer:
    network, ranks, stride = asked.network, asked.ranks, asked.inner
    if ranks == 1:
        raise ValueError(f"inner: {asked.inner} leaves groups of one rank, which have nothing to send; write less")
    names = [level.name for level in asked.cluster.levels]
    times = sorted(_algorithms(asked, network, names), key=lambda each: each.seconds)
    wanted = asked.sharp and asked.op == "all_reduce"
    in_switch = next((each for each in times if each.algorithm == SHARP), None) if wanted else None
    first = in_switch or next(each for each in times if each.automatic)
    law = [_law(asked, i) for i in range(len(names))]
    slowest = max((i for i in range(len(names)) if law[i] is not None), key=lambda i: law[i] or 0.0, default=None)
    band = band_of(int(level_members(asked.cluster, ranks, stride).nodes), asked.part)
    return CollectiveAnswer(
        op=asked.op, bytes=asked.bytes, cluster=asked.cluster.name, gpus=asked.cluster.gpus, ranks=ranks, inner=stride,
        law_s=None if slowest is None else law[slowest],
        law_in_network_s=_in_network(asked) if asked.op == "all_reduce" else None,
        law_level=None if slowest is None else names[slowest],
        seconds=first.seconds, band=(band.low, band.high), taken=first.algorithm, level=first.level,
        algorithms=times, levels=_levels(asked, network, first.algorithm, law), 
        notes=[*_explained(asked.op), *_sharp_line(wanted, in_switch, times), *notes],
    )  # fmt: skip


def _sharp_line(wanted: bool, used: AlgorithmTime | None, times: Sequence[AlgorithmTime]) -> list[str]:
    if not wanted:
        return []
    if used is None:
        return ["--sharp: no switch of this network adds; the time is that of the usual algorithm"]
    usual = next(each for each in times if each.automatic)
    return [f"--sharp: the time is that of sums in the switches; without it {usual.algorithm} takes "
            f"{time_text(usual.seconds)}"]  # fmt: skip


def _explained(op: str) -> list[str]:
    lines = [
        "law: bytes over bandwidth of the data sheet, the slowest level, no latency; fitted: latency and rates of "
        "published measurements",
        "switch: bytes through the switches above that many GPUs; least: where switches copy and add, no link carries "
        "anything twice, and what enters or leaves a node passes its switch too",
    ]
    return [*lines, "bytes are of all ranks together, each of which holds its part"] if op == "all_to_all" else lines


def _algorithms(asked: CollectiveQuestion, network: Network, names: list[str]) -> list[AlgorithmTime]:
    found = []
    for name, known in collectives().items():
        if asked.op not in known.ops:
            continue
        try:
            why = network.breakdown(asked.op, asked.part, asked.ranks, asked.inner, algorithm=name)
        except ValueError:
            continue  # such as a reduction in switches that cannot add
        seconds = float(why.seconds)
        bus = BUS.get(asked.op)
        able = known.automatic and (known.reduces_at == "none" or network.reducing[0])
        found.append(AlgorithmTime(
            algorithm=name, seconds=seconds, latency_s=float(why.latency), level=names[int(why.level)],
            bus_bytes_per_s=None if bus is None else bus * (asked.ranks - 1) / asked.ranks * asked.part / seconds,
            automatic=able,
        ))  # fmt: skip
    return found


def _law(asked: CollectiveQuestion, index: int) -> float | None:
    """What the level alone needs; None where the groups do not cross it."""
    sizes = [1, *np.cumprod([level.degree for level in asked.levels]).tolist()]
    below, block = max(sizes[index], asked.inner), sizes[index + 1]
    if asked.op not in LAWFUL or block <= below:
        return None
    rate = ideal_bandwidths(asked.levels, asked.inner)[index]
    if asked.op == "all_to_all":
        blocks = asked.cluster.gpus / below
        torus = asked.cluster.levels[index].torus
        # on a torus a byte passes the chips between: half of the longest axis' half, over as many axes
        passed = max(len(torus) * max(torus, default=0) / 4.0, 1.0)
        return float(asked.bytes * (blocks - 1.0) * passed / (blocks**2 * rate))
    met = replace(asked.levels[index], degree=block // below, bandwidth=rate, oversubscription=1.0)
    return float(ideal_seconds(asked.op, asked.bytes, [met]))


def _in_network(asked: CollectiveQuestion) -> float:
    rates = ideal_bandwidths(asked.levels, asked.inner)
    sizes = np.cumprod([level.degree for level in asked.levels])
    crossed = [rate for rate, size, level in zip(rates, sizes, asked.levels, strict=True)
               if size > asked.inner and level.degree > 1]  # fmt: skip
    return asked.bytes / min(crossed)


def _levels(asked: CollectiveQuestion, network: Network, taken: str, law: list[float | None]) -> list[LevelBytes]:
    sent = np.asarray(network.traffic(asked.op, asked.part, asked.ranks, asked.inner, algorithm=taken))
    shape = level_members(asked.cluster, asked.ranks, asked.inner)
    found = []
    for i, level in enumerate(asked.levels):
        gpus = min(asked.cluster.blocks[i], asked.cluster.gpus)
        if level.degree == 1:
            continue
        inside, below = float(shape.members[i]), float(shape.below[i])
        least = _least(asked, inside, below)
        groups = gpus / inside
        found.append(LevelBytes(
            level=level.name, gpus=gpus, bytes_per_s=level.usable_bandwidth, law_s=law[i],
            gpu_sends=float(sent[i]), passes=float(sent[i]) * gpus,
            least_in=None if least is None else groups * least[0],
            least_out=None if least is None else groups * least[1],
        ))  # fmt: skip
    return found


def _least(asked: CollectiveQuestion, inside: float, below: float) -> tuple[float, float] | None:
    """(in, out) bytes of a switch with `inside` ranks of a group under it, `below` under each of its children: every
    link carries once what the other side lacks, or a sum of what is behind it."""
    if asked.op not in LAWFUL or inside == below:
        return None
    size, whole = float(asked.ranks), asked.bytes / asked.inner
    children, top = inside / below, inside >= size
    share, child = inside / size, below / size
    if asked.op == "all_reduce":
        each = children * whole + (0.0 if top else whole)
        return each, each
    if asked.op == "all_to_all":
        each = children * child * (1.0 - child) * whole + share * (1.0 - share) * whole
        return each, each
    gathered = (whole, children * (1.0 - child) * whole + (0.0 if top else share * whole))
    return gathered if asked.op == "all_gather" else gathered[::-1]
