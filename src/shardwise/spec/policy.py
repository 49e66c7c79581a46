"""How the job is split. A Policy holds what the user chooses and no derived number.

`Policies` is the same thing for many policies at once: one numpy column per field. All formulas downstream take
`Policies`; one policy is a batch of one, so estimating one and scanning a million is the same code.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import Struct

from shardwise.arrays import Ints
from shardwise.plugins.pipeline import schedule_names
from shardwise.registry import closest

RECOMPUTE = ("none", "selective", "full")
ATTENTION = ("flash", "plain")
OFFLOAD = ("none", "optimizer", "activations", "both")
LOSS = ("", "plain", "fused", "chunked")
"""over all logits with copies of them in fp32; in place of the logits; or over logits of a few tokens at a time. Empty:
the program's own"""
MATRIX_LAYOUT = ("", "gather", "owned", "all-to-all", "blockwise")
"""how ranks that share a matrix update it with an optimizer that needs whole ones: each gathers and computes all of
them; each computes those it owns; pieces go to one owner and back; or tensor-parallel pieces count as matrices. Empty:
the program's own way"""
MODULES = ("core_attn", "mla_up_proj", "layernorm", "moe_act", "mlp", "moe", "shared_experts")
"""what selective recompute can repeat, in Megatron-Core's words; the column of policies has one bit for each"""
SHARES = 1000
"""parts of a whole that the column of `offload_share` counts in"""
ORDERS = ("tp-cp-dp-pp", "tp-dp-cp-pp", "tp-pp-cp-dp", "tp-pp-dp-cp")
"""which axes lie on neighbouring ranks, innermost first; cp and dp stay together: gradients are reduced over both"""
DEGREES = ("dp", "tp", "pp", "vpp", "cp", "ep", "etp")
"""numbers of a policy that split the work, as people read them; every other list of axes is made from this one"""
AXES = ("tp", "cp", "ep", "pp", "dp")
"""ways to split the work over GPUs"""
IN_LAYERS = AXES[:3]
"""axes whose messages stand between two parts of a layer"""
GRID = tuple(ORDERS[0].split("-"))
"""axes whose degrees multiply to the number of GPUs, innermost first; expert parallelism lies inside them"""
SHARDED = tuple(axis for axis in GRID if axis != "pp")
"""axes inside one pipeline stage, innermost first"""
COPY = tuple(axis for axis in DEGREES if axis in GRID and axis != "dp")
"""axes that cut one copy of the model; data parallelism takes the rest of the GPUs"""
ZERO = (0, 1, 2, 3)
FRAME = (
    *DEGREES, "sp", "micro_batch", "schedule", "attention", "order", "loss",
    "recompute_modules", "matrix_layout",
)  # fmt: skip
"""fields that decide what a layer computes and where it runs; all others are settings of such a frame"""
OVERLAPS = ("overlap_grad", "overlap_param", "overlap_tp", "overlap_pp")


@cache
def choices() -> dict[str, tuple[str, ...]]:
    """Fields that are one of several words; the position of a word is what columns of policies store."""
    return {
        "recompute": RECOMPUTE, "schedule": schedule_names(), "attention": ATTENTION, "offload": OFFLOAD,
        "order": ORDERS, "loss": LOSS, "matrix_layout": MATRIX_LAYOUT,
    }  # fmt: skip


MOST = 10**7
"""ranks, layers or sequences in one number of a policy"""


class Policy(Struct, frozen=True, kw_only=True):
    dp: int = 1
    """data parallel: replicas of the model (expert parallelism lies inside dp x cp x tp)"""
    tp: int = 1
    """tensor parallel"""
    pp: int = 1
    """pipeline stages"""
    vpp: int = 1
    """chunks of layers per stage (interleaving)"""
    cp: int = 1
    """context parallel: parts of the sequence"""
    ep: int = 1
    """expert parallel"""
    etp: int = 0
    """tensor parallel inside an expert; 0 means: as tp when ep is 1, else 1"""
    sp: bool = True
    """sequence parallel: norms and residuals sharded over tp"""
    zero: int = 1
    """0 replicates, 1 shards the optimizer, 2 gradients too, 3 parameters too (FSDP)"""
    shard_group: int = 0
    """ZeRO shards over this many data-parallel ranks and replicates over the rest (HSDP); 0 means all of them"""
    micro_batch: int = 1
    recompute: str = "none"
    recompute_layers: int = -1
    """layers of each stage that recompute; -1 means all"""
    recompute_modules: tuple[str, ...] = ()
    """what selective recompute repeats, of `MODULES`; empty: what the program repeats by itself"""
    schedule: str = "1f1b"
    attention: str = "flash"
    overlap_grad: bool = True
    """gradient reduction runs under the backward pass, bucket by bucket"""
    overlap_param: bool = True
    """parameter all-gather (ZeRO) runs under the compute before it"""
    overlap_tp: bool = False
    """tensor-parallel collectives are pipelined with their products"""
    overlap_pp: bool = True
    offload: str = "none"
    offload_share: float = 1.0
    """of what `offload` names: of the optimizer's parameters, of the layers whose activations go"""
    loss: str = ""
    matrix_layout: str = ""
    """where whole matrices are updated, of an optimizer that needs them"""
    order: str = ORDERS[0]
    """how the axes lie on the fabric"""
    sync: str = ""
    """strategy of data parallelism with its settings, such as 'diloco,every=64'; empty: the mean gradient"""

    def __post_init__(self) -> None:
        for field in (*AXES, "vpp", "micro_batch"):
            value = getattr(self, field)
            if not 1 <= value <= MOST:
                raise ValueError(f"policy: {field} is {value}; write a whole number of 1 or more, at most {MOST:,}")
        if self.zero not in ZERO:
            raise ValueError(f"policy: zero is {self.zero}; write 0, 1, 2 or 3")
        for field, least in (("etp", 0), ("shard_group", 0), ("recompute_layers", -1)):
            value = getattr(self, field)
            if not least <= value <= MOST:
                raise ValueError(f"policy: {field} is {value}; write a whole number from {least} to {MOST:,}")
        for field, known in choices().items():
            value = getattr(self, field)
            if value not in known:
                raise ValueError(f"policy: {field} is {value!r}; {closest(str(value), [w for w in known if w])}")
        if self.recompute_modules:
            _check_modules(self.recompute_modules, self.recompute, self.recompute_layers)
        if not 1 / SHARES <= self.offload_share <= 1:
            raise ValueError(
                f"policy: offload_share is {self.offload_share:g}; write a share from {1 / SHARES:g} to 1, and "
                "offload none for nothing"
            )

    @property
    def gpus(self) -> int:
        return self.dp * self.tp * self.pp * self.cp


@dataclass(frozen=True)
class Policies:
    """Many policies: one column per field of Policy but `sync`, choices as their index in `choices`, modules as bits,
    shares in thousandths. A batch has one strategy, which whoever prices it states."""

    dp: Ints
    tp: Ints
    pp: Ints
    vpp: Ints
    cp: Ints
    ep: Ints
    etp: Ints
    sp: Ints
    zero: Ints
    shard_group: Ints
    micro_batch: Ints
    recompute: Ints
    recompute_layers: Ints
    recompute_modules: Ints
    schedule: Ints
    attention: Ints
    overlap_grad: Ints
    overlap_param: Ints
    overlap_tp: Ints
    overlap_pp: Ints
    offload: Ints
    offload_share: Ints
    loss: Ints
    matrix_layout: Ints
    order: Ints

    def __len__(self) -> int:
        return len(self.dp)

    @classmethod
    def of(cls, policies: Iterable[Policy]) -> "Policies":
        rows = list(policies)
        return cls(**{f.name: np.array(_column(rows, f.name), dtype=np.int64) for f in fields(cls)})

    @classmethod
    def columns(cls, size: int, **given: Ints) -> "Policies":
        """Columns from arrays; a field that is not given takes Policy's default."""
        default = Policy()
        return cls(
            **{
                f.name: np.ascontiguousarray(given[f.name], dtype=np.int64)
                if f.name in given
                else np.full(size, encoded(default, f.name), dtype=np.int64)
                for f in fields(cls)
            }
        )

    def take(self, index: Ints | slice) -> "Policies":
        return Policies(**{name: getattr(self, name)[index] for name in self.__dataclass_fields__})

    def __getitem__(self, index: int) -> Policy:
        return Policy(**{f.name: _decoded(f.name, int(getattr(self, f.name)[index])) for f in fields(self)})


def expert_tp(policies: Policies) -> Ints:
    """Tensor parallelism inside an expert, where `etp` leaves it open too."""
    return np.where(policies.etp > 0, policies.etp, np.where(policies.ep > 1, 1, policies.tp))


def encoded(policy: Policy, field: str) -> int:
    return int(_column([policy], field)[0])


def _column(policies: list[Policy], field: str) -> list[int]:
    values = list(map(attrgetter(field), policies))
    if field == "recompute_modules":
        return [module_bits(*value) for value in values]
    if field == "offload_share":
        return [round(SHARES * value) for value in values]
    return list(map(choices()[field].index, values)) if field in choices() else values


def module_bits(*names: str) -> int:
    """The column's value."""
    return sum(1 << MODULES.index(name) for name in set(names))


def _decoded(field: str, value: int) -> Any:
    if field == "recompute_modules":
        return tuple(name for bit, name in enumerate(MODULES) if value >> bit & 1)
    if field == "offload_share":
        return value / SHARES
    if field in choices():
        return choices()[field][value]
    return bool(value) if isinstance(getattr(Policy(), field), bool) else value


def _check_modules(modules: tuple[str, ...], recompute: str, layers: int) -> None:
    for name in modules:
        if name not in MODULES:
            raise ValueError(f"policy: recompute_modules has {name!r}; {closest(name, list(MODULES))}")
    if recompute != "selective":
        raise ValueError(
            f"policy: recompute_modules is {','.join(modules)} with recompute {recompute}; write recompute selective"
        )
    if layers >= 0:
        raise ValueError(
            f"policy: recompute_layers is {layers} with recompute_modules, which are of every layer; write -1"
        )
