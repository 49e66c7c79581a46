"""What `shardwise sweep` moves: 'gpus=64:4096', 'seq=2048:131072', 'micro=1:16', 'network=10Gbps:800Gbps'."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from shardwise.plan import Limits
from shardwise.plan.constraints import constraints_of
from shardwise.question import Question
from shardwise.registry import closest
from shardwise.spec.cluster import Cluster
from shardwise.spec.sizes import sizes_of
from shardwise.units import count_of, rate_of, sequence_tokens

AXES = ("gpus", "seq", "micro", "batch", "network")
FORM = "write for example gpus=64:4096, seq=2048:131072, micro=1:16, batch=256:2048 or network=10Gbps:800Gbps"
MOST_POINTS = 64
Place = Callable[[float], tuple[Question, Cluster]]


@dataclass(frozen=True)
class SweepAxis:
    name: str
    values: tuple[float, ...]
    title: str

    def text(self, value: float) -> str:
        return f"{value * 8 / 1e9:,.4g} Gbps" if self.name == "network" else f"{value:,.0f}"


TITLES = {
    "gpus": "GPUs", "seq": "sequence length, tokens", "micro": "sequences per micro-batch",
    "batch": "sequences per step", "network": "network bandwidth of a GPU, each way",
}  # fmt: skip


def axis_of(text: str) -> SweepAxis:
    name, sign, rest = text.partition("=")
    name = name.strip().lower()
    if not sign or not rest.strip():
        raise ValueError(f"over: cannot read {text!r}; {FORM}")
    if name not in AXES:
        raise ValueError(f"over: {name!r} is not an axis; {closest(name, list(AXES))}")
    if ":" in rest:
        low, _, high = rest.partition(":")
        values = _doubling(_number(name, low), _number(name, high), text)
    else:
        values = tuple(sorted({_number(name, item) for item in rest.split(",")}))
    if len(values) > MOST_POINTS:
        raise ValueError(f"over: {text!r} has {len(values)} points; write at most {MOST_POINTS}")
    return SweepAxis(name, values, TITLES[name])


def _number(name: str, text: str) -> float:
    if not text.strip():
        raise ValueError(f"over: a value of {name} is missing; {FORM}")
    parse = {"network": rate_of, "seq": sequence_tokens}.get(name, count_of)
    value = float(parse(text, name))
    if not value > 0:
        raise ValueError(f"{name}: {text.strip()!r} is out of range; write more than 0")
    return value


def _doubling(low: float, high: float, text: str) -> tuple[float, ...]:
    if low > high:
        raise ValueError(f"over: {text!r} runs backwards; write the smaller end first")
    values: list[float] = []
    while low < high * (1 - 1e-9) and len(values) <= MOST_POINTS:
        values.append(low)
        low *= 2
    return (*values, high)


def place_of(axis: SweepAxis, case: Question, on: str, *, weak: bool, searched: bool) -> Place:
    """Question and cluster at a value of the axis; with `searched` a micro-batch is a bound on the search."""
    if weak and axis.name != "gpus":
        raise ValueError(f"weak: the batch grows with the GPUs, not with {axis.name}; write --over gpus=64:4096")
    if axis.name == "gpus":
        return _over_gpus(axis, case, on, weak=weak)
    cluster = sizes_of(on).named
    if cluster is None:
        raise ValueError(f"on: {on!r} has no number of GPUs; write for example dgx-h100:256, or --over gpus=64:4096")
    if axis.name == "network":
        return over_network(case, cluster)
    odd = next((v for v in axis.values if axis.name == "micro" and searched and round(v).bit_count() > 1), None)
    if odd is not None:
        raise ValueError(f"micro: a search tries powers of two, not {odd:.0f}; write 1:16, or state --policy")
    fixed = cluster

    def place(value: float) -> tuple[Question, Cluster]:
        number = round(value)
        if axis.name == "micro":
            only = (*case.only, *(constraints_of([f"micro={number}"]) if searched else ()))
            return replace(case, only=only, limits=with_fields(case.limits or Limits(), micro_batch=number)), fixed
        if axis.name == "batch":
            return replace(case, job=with_fields(case.job, global_batch=number)), fixed
        sequences = max(case.job.step_tokens // number, 1)
        return replace(case, job=with_fields(case.job, seq=number, global_batch=sequences)), fixed

    return place


def _over_gpus(axis: SweepAxis, case: Question, on: str, *, weak: bool) -> Place:
    sizes = sizes_of(on)
    first = axis.values[0]

    def place(value: float) -> tuple[Question, Cluster]:
        cluster = sizes.at(round(value))
        if not weak:
            return case, cluster
        batch = max(round(case.job.global_batch * value / first), 1)
        return replace(case, job=with_fields(case.job, global_batch=batch)), cluster

    return place


def over_network(case: Question, cluster: Cluster) -> Place:
    if all(level.kind != "network" for level in cluster.levels):
        raise ValueError(f"network: {cluster.name} is one node and has none; write a cluster of several nodes")

    def place(value: float) -> tuple[Question, Cluster]:
        levels = tuple(with_fields(v, bandwidth=value) if v.kind == "network" else v for v in cluster.levels)
        return case, with_fields(cluster, levels=levels)

    return place
