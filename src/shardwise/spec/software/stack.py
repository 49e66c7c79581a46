"""A software stack: the settings in which training programs differ, in parts, each number with its origin."""

import re
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shardwise.registry import closest
from shardwise.spec.job import Precision, precision_of, with_scaling
from shardwise.spec.model import Model
from shardwise.spec.policy import OVERLAPS, Policy
from shardwise.spec.software.limits import as_run
from shardwise.spec.software.origin import Origin
from shardwise.spec.software.parts import (
    Abilities,
    ExpertSettings,
    HostCosts,
    Kernels,
    Loss,
    MemoryUse,
    NetworkUse,
    Overlap,
)

DEFAULT = Origin("default", "", "")
IN_EIGHT_BITS = {"bf16-pure": "fp8-pure", "bf16-pure-reduce32": "fp8-pure-reduce32"}
"""a program that keeps weights and moments in 16 bits keeps them so where its products take 8"""
DTYPE_WORDS = (
    "bf16", "fp16", "fp8", "fp8-tensorwise", "fp8-cs", "fp8-rowwise", "fp8-blockwise", "mxfp8", "fp8-mx", "fp4",
    "nvfp4",
)  # fmt: skip
"""dtypes of products as people say them; which bytes are kept and sent beside them is the program's"""


class Provenance(Struct, frozen=True):
    """Where the settings of a stack come from."""

    origins: tuple[tuple[str, Origin], ...] = ()
    """of every setting that is not at its default"""
    stated: tuple[str, ...] = ()
    """settings that the stack's own file has"""
    called: str = ""
    """the `software` text that the stack was taken for; empty where the stack itself was named"""
    sharded: bool = False
    """it was taken for a run that cuts its model or its state"""


def covers(name: str, source: str) -> bool:
    """`fitted_on` names a source or the beginning of its name up to a dash."""
    return source == name or source.startswith(f"{name}-")


class Stack(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    summary: str
    source: str
    date: str
    like: str = ""
    """the stack whose settings hold where this file states none"""
    in_bf16: str = ""
    """the stack whose file states what is different where a job computes in bf16"""
    library: bool = False
    """programs are built on it: one that a `software` text names beside it is meant, however short its name"""
    compiled: str = ""
    """the stack whose file states what is different where a `software` text says that blocks are compiled"""
    uncompiled: str = ""
    """the same where it says that they are not, of a program that compiles them"""
    matches: tuple[str, ...] = ()
    """lower-case pieces of a `software` text that mean this stack; the longest match wins"""
    platforms: tuple[str, ...] = ()
    """lower-case words of a `software` text that mean it where no program and no library is named"""
    was: tuple[str, ...] = ()
    """former names"""
    fitted_on: str = ""
    """the sources of the runs its fitted numbers come from"""
    fitted_evenly: bool = False
    """each of these sources weighs the same in the fit, however many rows it has"""
    caution: str = ""
    """what is known of its runs and not predicted, for people who use stages over several nodes"""

    kernels: Kernels = Kernels()
    host: HostCosts = HostCosts()
    experts: ExpertSettings = ExpertSettings()
    overlap: Overlap = Overlap()
    network: NetworkUse = NetworkUse()
    memory: MemoryUse = MemoryUse()
    loss: Loss = Loss()
    abilities: Abilities = Abilities()
    provenance: Provenance = Provenance()

    @property
    def program(self) -> str:
        """Its program, whatever the release."""
        return self.name.partition("@")[0]

    @property
    def origins(self) -> tuple[tuple[str, Origin], ...]:
        return self.provenance.origins

    @property
    def stated(self) -> tuple[str, ...]:
        return self.provenance.stated

    @property
    def called(self) -> str:
        return self.provenance.called

    @property
    def programs(self) -> frozenset[str]:
        """Names of the programs it stands for, without their releases: 'megatron-bridge 26.06' is a Megatron-Bridge."""
        return frozenset(re.split(r"[ (,…]", piece.rsplit("/", 1)[-1])[0] for piece in self.matches)

    @property
    def fitted(self) -> tuple[str, ...]:
        """Settings whose values its own file says were fitted; what it takes over is fitted where it comes from."""
        return tuple(name for name, origin in self.origins if origin.kind == "fitted" and origin.stack == self.name)

    @property
    def fitted_sources(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.fitted_on.split(",") if name.strip())

    def fitted_to(self, source: str) -> bool:
        """Whether its fitted numbers come from runs of that source, among others."""
        return any(covers(name, source) for name in self.fitted_sources)

    @property
    def overlaps(self) -> dict[str, Any]:
        """What the program overlaps where it can, by the names of a policy's fields."""
        return {name: getattr(self.overlap, name) for name in OVERLAPS}

    def overlapping(self, policy: Policy, stated: Collection[str] = ()) -> Policy:
        """With what the program overlaps in it, but for the fields that are stated."""
        own = as_run(
            self.abilities.limits, replace(policy, **{n: v for n, v in self.overlaps.items() if n not in stated})
        )
        return replace(policy, **{name: getattr(own, name) for name in OVERLAPS if name not in stated})

    def origin(self, setting: str) -> Origin:
        return dict(self.origins).get(setting, DEFAULT)

    def setting(self, name: str) -> Any:
        """A setting of any part, by its name."""
        return getattr(getattr(self, part_of(name)), name)

    def changed(self, **settings: Any) -> "Stack":
        """The same with some settings of its parts replaced."""
        parts: dict[str, dict[str, Any]] = {}
        for name, value in settings.items():
            parts.setdefault(part_of(name), {})[name] = value
        changed = {part: msgspec.structs.replace(getattr(self, part), **values) for part, values in parts.items()}
        return msgspec.structs.replace(self, **changed)

    def told(self, settings: dict[str, Any], origin: Origin) -> "Stack":
        """With settings that are known of the run from elsewhere than the stack's file."""
        origins = dict(self.origins) | dict.fromkeys(settings, origin)
        provenance = msgspec.structs.replace(self.provenance, origins=tuple(origins.items()))
        return msgspec.structs.replace(self.changed(**settings), provenance=provenance)

    def taking_over(self, other: "Stack") -> "Stack":
        """With what the file of another stack states itself."""
        stack = self.changed(**{name: other.setting(name) for name in other.stated})
        origins = dict(self.origins) | {name: other.origin(name) for name in other.stated}
        provenance = msgspec.structs.replace(self.provenance, origins=tuple(origins.items()))
        return msgspec.structs.replace(stack, provenance=provenance)

    def trained(self, model: Model) -> Model:
        """The model as this program trains it."""
        if self.abilities.predicts_further or not model.mtp_layers:
            return model
        return msgspec.structs.replace(model, mtp_layers=0)

    def precision_for(self, dtype: str) -> Precision:
        """What this program means by a dtype such as bf16, fp8, fp8-cs, fp8-rowwise, mxfp8 or nvfp4."""
        means = self.abilities
        if "fp4" in dtype:
            return precision_of(means.precision_fp4)
        if "fp8" not in dtype:
            named = {"fp16": means.precision_fp16, "fp32": "fp32", "tf32": "tf32"}
            return precision_of(named.get(dtype, means.precision_bf16))
        recipe = precision_of(IN_EIGHT_BITS.get(means.precision_bf16, means.precision_fp8))
        scaling = next((kind for kind in ("row", "block", "mx") if kind in dtype), "")
        return with_scaling(recipe, scaling) if scaling else recipe

    def precision(self, name: str) -> Precision:
        """A dtype as this program means it, or the recipe of that name."""
        return self.precision_for(name) if name in DTYPE_WORDS else precision_of(name)


PARTS: dict[str, type[Struct]] = {
    "kernels": Kernels, "host": HostCosts, "experts": ExpertSettings, "overlap": Overlap, "network": NetworkUse,
    "memory": MemoryUse, "loss": Loss, "abilities": Abilities,
}  # fmt: skip
"""table of a stack's file -> its settings"""
_PART_OF = {name: part for part, struct in PARTS.items() for name in struct.__struct_fields__}


def part_of(setting: str) -> str:
    """The part that has a setting; names are unique over all parts."""
    if setting not in _PART_OF:
        raise ValueError(f"setting: {setting!r} is unknown; {closest(setting, list(_PART_OF))}")
    return _PART_OF[setting]
