"""What a launch is, and what a target's file must offer to write and to read one."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_
from typing import Any

from msgspec.structs import replace

from shardwise.programs.formats._rollout import StatedRollout
from shardwise.programs.formats._settings import FileSettings
from shardwise.registry import closest
from shardwise.spec.model import Model
from shardwise.spec.policy import ORDERS, Policy
from shardwise.spec.software import stack_of
from shardwise.spec.software.dispatcher import with_dispatcher
from shardwise.spec.software.limits import broken_by
from shardwise.spec.software.stack import Stack
from shardwise.work.case import Case


@dataclass(frozen=True)
class HostCards:
    """What the site calls the network of a host; nothing of it follows from a cluster's description."""

    interface: str = ""
    """of the first contact between ranks"""
    names: tuple[str, ...] = ()
    """of the cards that carry NCCL's traffic, in the order of the GPUs they stand beside"""


NO_CARDS = HostCards()


@dataclass(frozen=True)
class Launch:
    """One policy of one case, as it is to be started."""

    case: Case
    policy: Policy
    layers: tuple[int, ...] = ()
    """of each chunk of the pipeline, in the order a micro-batch passes them; empty: as the case's program splits"""
    version: str = ""
    """of the target; empty: the first it knows"""
    called: str = ""
    """the model, as its user names it"""
    comments: tuple[str, ...] = ()
    """lines that stand at the head of what is written"""
    cards: HostCards = NO_CARDS


@dataclass(frozen=True)
class Lack:
    """A field of a policy that a target cannot state."""

    field: str
    value: Any
    why: str
    instead: Mapping[str, Any] | None = None
    """fields as the program runs them; None: it cannot run this policy"""


@dataclass(frozen=True)
class Written:
    files: dict[str, str]
    """name -> text; the first is what is launched"""
    environment: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trial: str = ""
    """a script of tiny data and a tiny model, to try the files with"""


@dataclass(frozen=True)
class Known:
    """What is known beside the file that is read."""

    gpus: int | None = None
    layers: int | None = None


@dataclass(frozen=True)
class Found:
    """What a file says."""

    policy: Policy
    gpus: int | None = None
    seq: int | None = None
    global_batch: int | None = None
    pipeline_passes: int = 1
    """times a step fills and drains its pipeline, as far as the file says"""
    precision: str = ""
    optimizer: str = ""
    model: Model | None = None
    """where the file has its shape"""
    called: str = ""
    """the model, as the file names it"""
    freeze: str = ""
    """frozen parts, as `--freeze` has it"""
    stack: str = ""
    """where what prices it follows from the file: Hugging Face's models under ZeRO; empty: the format's"""
    version: str = ""
    """of the target, where it has several forms"""
    layers: tuple[int, ...] = ()
    tune: str = ""
    """adapters that are trained in place of the model's weights, as `--tune` has them"""
    software: Mapping[str, Any] = field(default_factory=dict)
    """settings of the program that its stack has: dispatcher, context_parallel"""
    unmodelled: tuple[str, ...] = ()
    """settings that were read and that nothing here depends on"""
    not_modelled: tuple[str, ...] = ()
    """settings that change a step and that the prediction does not follow"""
    notes: tuple[str, ...] = ()
    """what was taken for granted"""
    rollout: StatedRollout | None = None
    """of reinforcement learning"""


@dataclass(frozen=True)
class Format:
    name: str
    title: str
    stack: str
    """whose settings price what it runs"""
    source: str
    """the files its option names were read in"""
    claims: Callable[[FileSettings], bool]
    """whether settings are of this program, where the command that starts it does not tell"""
    read: Callable[[FileSettings, Known], Found]
    starts: str = ""
    """regular expression of what starts it: script, module, or command with its verb"""
    parts: bool = False
    """it takes files of accelerate and DeepSpeed, whose settings stand under `accelerate.` and `deepspeed.`"""
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """field -> values that can be stated; others are refused"""
    own: Callable[[str], Mapping[str, Any]] = lambda _version: {}
    """(version) -> fields it has no switch for, and what it runs with: a policy's wish is done without, at a cost"""
    gaps: Callable[[Launch], list[Lack]] = lambda _launch: []
    """what else cannot be stated in its files; what the program cannot run is in its stack (`Abilities.limits`)"""
    write: Callable[[Launch], Written] | None = None
    """None: its files are read, not written"""
    versions: tuple[str, ...] = ()
    limits: tuple[str, ...] | None = None
    """of a program for which another's stack stands in; None: those of its stack"""
    excludes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """setting -> others that the program refuses beside it"""
    states: tuple[str, ...] = ()
    """of what a stack says about the program: dispatcher, context_parallel"""
    local_batches: bool = False
    """its pipeline takes a local batch, several of which make up a step"""
    adapters: bool = False
    """its launch can train adapters (LoRA, QLoRA, DoRA)"""
    smoke: str = ""
    """words behind `bash train.sh` for a few steps on tiny data, or a whole command line"""
    own_script: bool = False
    """it starts the user's own training code, whatever that trains; the others build language models themselves"""

    def written(self, launch: Launch) -> Written:
        if self.write is None:
            raise ValueError(f"to: files of {self.title} are read, not written; take another --to")
        return self.write(launch)

    def started_by(self, program: str) -> bool:
        return bool(self.starts and re.fullmatch(self.starts, program))


def set_up(stack: Stack, found: Found) -> Stack:
    """A program as a file sets it up."""
    if "context_parallel" in found.software:
        stack = stack.changed(context_parallel=found.software["context_parallel"])
    return with_dispatcher(stack, found.software["dispatcher"]) if "dispatcher" in found.software else stack


def version_of(target: Format, version: str) -> str:
    if not target.versions:
        if version:
            raise ValueError(f"version: {version!r}, but {target.name} is written in one form; leave --version away")
        return ""
    if version and version not in target.versions:
        raise ValueError(f"version: {version!r} of {target.name} is unknown; {closest(version, list(target.versions))}")
    return version or target.versions[0]


def gaps_of(target: Format, launch: Launch) -> list[Lack]:
    policy = launch.policy
    if launch.case.job.pipeline_passes > 1 and policy.pp > 1 and not target.local_batches:
        raise ValueError(f"pipeline-passes: {target.title} sends the whole batch through the pipeline; leave it out")
    found = [
        Lack(name, getattr(policy, name), f"{target.title} states {_listed(values)} only")
        for name, values in target.only.items()
        if getattr(policy, name) not in values
    ]
    own = settled(replace(policy, **dict(target.own(launch.version))), launch.case)
    found += [
        Lack(name, getattr(policy, name), f"{target.title} has no switch for it", {name: getattr(own, name)})
        for name in target.own(launch.version)
        if getattr(policy, name) != getattr(own, name)
    ]
    for gap in (*_limited(target, launch), *target.gaps(launch)):
        if gap.field not in {other.field for other in found}:
            found.append(gap)
    return found


def _limited(target: Format, launch: Launch) -> list[Lack]:
    """What the program cannot run beside the rest of the policy, as a plan for its stack has it."""
    able, tuning = stack_of(target.stack).abilities, launch.case.job.tuning
    names = able.limits if target.limits is None else target.limits
    names += able.limits_with_adapters if tuning is not None and tuning.adapters is not None else ()
    policy, found = launch.policy, list[Lack]()
    for limit in broken_by(names, policy):
        own = None if limit.instead is None else settled(replace(policy, **limit.instead(policy)), launch.case)
        instead = None if own is None else {limit.field: getattr(own, limit.field)}
        found.append(Lack(limit.field, getattr(policy, limit.field), limit.why, instead))
    return found


def expressed(target: Format, launch: Launch) -> tuple[Launch, list[Lack]]:
    """The launch as the target runs it and what it does without; what it cannot run is a ValueError."""
    model = launch.case.model
    if model.inputs == "patches" and not target.own_script:
        raise ValueError(
            f"model: {model.name} reads images, and {target.title} builds language models; write --to accelerate or "
            "deepspeed, which start your own script"
        )
    chip = launch.case.cluster.gpu
    if chip.tpu and target.name != "maxtext":
        raise ValueError(f"on: {target.title} does not run on {chip.name}; write --to maxtext")
    tuning = launch.case.job.tuning
    if tuning is not None and (not target.adapters or tuning.freeze_text):
        what = f"freeze: {tuning.freeze_text}" if tuning.freeze_text else f"tune: {tuning.tune_text}"
        other = "leave --freeze out" if target.adapters else "write --to trl or accelerate, or leave --tune out"
        raise ValueError(f"{what}, but a launch of {target.title} does not state it; {other}")
    gaps = gaps_of(target, launch)
    for gap in gaps:
        if gap.instead is None:
            raise ValueError(f"{gap.field}: {word_of(gap.value)}, but {gap.why}; take another value or another --to")
    changed = launch.policy
    for gap in gaps:
        changed = replace(changed, **dict(gap.instead or {}))
    return with_(launch, policy=settled(changed, launch.case)), gaps


def settled(policy: Policy, case: Case) -> Policy:
    """The same policy with fields that decide nothing in it at one value each, so that equal policies are equal."""
    data = policy.dp * policy.cp
    given: dict[str, Any] = {"loss": policy.loss or case.stack.loss.loss_kind}
    if policy.tp == 1:
        given |= {"sp": False, "overlap_tp": False}
    if policy.etp == (1 if policy.ep > 1 else policy.tp) or not any(kind.experts for kind in case.model.kinds):
        given["etp"] = 0
    if policy.shard_group == data or policy.zero == 0 or data == 1:
        given["shard_group"] = 0
    if data == 1:
        given |= {"zero": 0, "overlap_grad": False}
    if data == 1 or policy.zero == 0:
        given["overlap_param"] = False
    if policy.recompute == "none":
        given |= {"recompute_layers": -1, "recompute_modules": ()}
    elif policy.recompute_layers >= most_layers(case.model, policy):
        given["recompute_layers"] = -1
    if policy.pp == 1:
        given |= {"schedule": "1f1b", "overlap_pp": False}
    if policy.offload == "none":
        given["offload_share"] = 1.0
    given["order"] = same_order(policy)
    return replace(policy, **given)


def own_overlaps(stack: str, *names: str) -> dict[str, Any]:
    """What a program does by itself, as its stack is described."""
    return {name: stack_of(stack).setting(name) for name in names}


def most_layers(model: Model, policy: Policy) -> int:
    """Layers of the longest stage of an even split."""
    return -(-model.layers // policy.pp)


def split_axes(policy: Policy, order: str) -> tuple[str, ...]:
    """The axes that are split, in this order."""
    return tuple(axis for axis in order.split("-") if getattr(policy, axis) > 1)


def same_order(policy: Policy) -> str:
    """The first of the orders that lays this policy's ranks as its own does."""
    wanted = split_axes(policy, policy.order)
    return next(order for order in ORDERS if split_axes(policy, order) == wanted)


def _listed(values: tuple[Any, ...]) -> str:
    words = [word_of(value) for value in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def word_of(value: Any) -> str:
    """A value of a policy for the screen."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return str(value) or "none"
