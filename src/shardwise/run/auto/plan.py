"""What is done to a model: how many ranks share what, which products are cut, why others are not. No torch here."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from shardwise.fields import read_file, state_once
from shardwise.plugins.pipeline import schedule_names, usual_schedule
from shardwise.plugins.schedules import held_pieces
from shardwise.registry import closest
from shardwise.spec.policy import OFFLOAD

VERSION = 1
AXES = ("pp", "dp", "cp", "tp")
"""as ranks are numbered: the last one changes fastest"""
MOST_BYTES = 2**28


class Degrees(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many ranks share the batch (dp, with FSDP2), the sequence (cp), each product (tp) and the blocks (pp)."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    micro_batches: int = 1
    """of a step, where there are pipeline stages"""
    recompute: bool = False
    """blocks keep their inputs only and run again in the backward pass"""
    ep: int = 1
    """ranks of those that share the batch over which experts are shared out: 1, or all of them"""
    sp: bool = False
    """between the cut products, norms and sums run on each rank's own tokens"""
    vpp: int = 1
    """chunks of blocks on every rank of a pipeline, each a stage of its own"""
    schedule: str = ""
    """of the stages; empty: 1f1b, or interleaved where ranks hold several"""
    offload: str = "none"
    """what is on the host: activations of blocks until their backward, the optimizer's state between steps, both"""
    replicas: int = 1
    """groups of the dp ranks of which each holds all shards (HSDP)"""

    @property
    def shards(self) -> int:
        """Ranks over which FSDP2 shares a parameter out, of those that share the batch."""
        return self.dp // self.replicas

    @property
    def order(self) -> str:
        """The schedule's name."""
        return self.schedule or usual_schedule(self.vpp)

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp * self.cp

    @property
    def text(self) -> str:
        named = {"dp": self.replicas, "fsdp": self.shards, "tp": self.tp, "pp": self.pp, "cp": self.cp}
        found = " x ".join(f"{name} {size}" for name, size in named.items() if size > 1) or "one process"
        further = {f"vpp {self.vpp}": self.vpp > 1, self.schedule: self.schedule, f"ep {self.ep}": self.ep > 1,
                   "sp": self.sp, "recompute": self.recompute,
                   f"{self.offload} on the host": self.offload != "none"}  # fmt: skip
        return ", ".join([found, *(text for text, there in further.items() if there)])


class Column(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A product whose outputs are shared out. `indices`: which of them each rank holds; one that several ranks need (a
    key head of many query heads) is held by each of them, and its gradients are summed."""

    module: str
    indices: tuple[tuple[int, ...], ...]
    inside: bool = False
    """its input is made of what another column GEMM of the cut makes, whose own input is where gradients are summed"""


class NormCut(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A norm over features that are shared out: each rank holds the weights of its own, squares are summed over all."""

    module: str
    indices: tuple[tuple[int, ...], ...]
    width: int
    """features of all ranks"""
    epsilon: float
    centred: bool = False
    """the mean is taken off first"""
    from_one: bool = False
    """its weight is added to one"""
    gate: str = ""
    """`before` or `after`: its second input, through silu, multiplies what is normed, or what the norm gives"""


class ExpertStack(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A weight that is no GEMM's, shared out along an axis: of several experts, or of the channels of a scan."""

    parameter: str
    axis: int
    indices: tuple[tuple[int, ...], ...]


class Size(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole number in the user's code that counts what is now shared out, and what it becomes."""

    module: str
    name: str
    """`config.NAME`: of the module's own copy of its configuration"""
    value: int


class ProductCut(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Products between which every rank computes its own share: column products, then one row product whose outputs are
    summed. Names are relative to the block."""

    around: str
    """the module that holds all of it"""
    columns: tuple[Column, ...] = ()
    row: str = ""
    stacks: tuple[ExpertStack, ...] = ()
    """beside them: weights used between them, a row a channel or head; in their place: weights of experts, between the
    inputs and the output of the module around them"""
    sums: tuple[str, ...] = ()
    """GEMMs between them that are cut by rows too: all ranks go on with the sum (steps and states of a scan)"""
    inner: tuple[str, ...] = ()
    """weights used between them, whole on every rank: their gradients are summed"""
    divided: tuple[str, ...] = ()
    """of these, biases that every rank adds to what is summed: each adds its part"""
    sizes: tuple[Size, ...] = ()
    norms: tuple[NormCut, ...] = ()
    fitted: bool = False
    """sizes written into views and tensors of all heads are fitted while it runs"""
    flat: bool = False
    """of tensors of all heads, those whose first axis runs over samples and heads are cut within each sample"""
    entries: tuple[tuple[int, bool], ...] = ()
    """of the tensors that enter it and whose gradients are summed: elements, and whether they grow with the batch"""
    row_elements: int = 0
    """of the summed output"""
    totals: tuple[int, ...] = ()
    """elements of what norms sum over the ranks, and sum again going back"""
    attends: bool = False
    """tokens meet in it: heads are what is shared out"""


class ExpertHome(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Experts of a block that are shared out whole. Names are relative to the block, those of weights to the module."""

    module: str
    parameters: tuple[str, ...]
    count: int
    sizes: tuple[Size, ...] = ()
    hidden: int = 0
    """elements of the tokens they are called with"""
    chosen: int = 0
    """of the router's choices, and of their weights"""


class CutRefusal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is not cut, and why not."""

    where: str
    why: str


class CutKind(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Blocks that are alike: the cuts are the same in all of them."""

    class_name: str
    blocks: tuple[str, ...]
    cuts: tuple[ProductCut, ...] = ()
    refusals: tuple[CutRefusal, ...] = ()
    parameters: int = 0
    """of one block"""
    split_parameters: int = 0
    """of them, in products that are cut"""
    outside: tuple[str, ...] = ()
    """parameters outside the cuts, whose gradients are summed where ranks share their tokens (sp)"""
    whole_tokens: str = ""
    """why ranks cannot share the tokens outside the cuts, where that was asked"""
    homes: tuple[ExpertHome, ...] = ()
    """experts that ranks share out, where that was asked (ep)"""
    no_homes: str = ""
    """why they are not"""
    joins: dict[str, int] = {}
    """modules of a block that get the tokens of all ranks where a sequence is shared (cp), and the elements of what
    they take; none where torch's scaled dot-product attention is where tokens meet"""
    no_joins: str = ""
    """why ranks cannot share the tokens around them"""
    returns: int = -1
    """0: a tensor; n: n values of which the first is the tensor that the next block takes; -1: something else"""


class Vocabulary(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tables with a row a word, and products with an output a word, shared out by words."""

    tables: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    head_inputs: tuple[int, ...] = ()
    """elements of the input of each head"""
    table_outputs: tuple[int, ...] = ()
    head_outputs: tuple[int, ...] = ()
    table_calls: tuple[int, ...] = ()
    """how often each is called in a forward pass; empty: once"""
    head_calls: tuple[int, ...] = ()


class End(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A parameter outside the blocks, and which pipeline stages need it: of a module that runs before the first block,
    behind the last one, or wherever."""

    parameter: str
    first: bool = False
    last: bool = False

    def needed(self, held: Sequence[int], stages: int) -> bool:
        """By a rank that holds these of so many stages."""
        everywhere = not self.first and not self.last
        return everywhere or (self.first and 0 in held) or (self.last and stages - 1 in held)


class Handed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tensor that a block makes and other blocks, or the loss, read."""

    place: int
    """of the block in the order of calls"""
    leaf: int = 0
    """which of the tensors it returns"""
    last: int = -1
    """the last reader's place; as many as there are blocks: the loss; -1: nobody"""
    shape: tuple[int, ...] = ()
    """empty: that of the first tensor the block takes"""
    elements: int = 0
    grows: bool = True
    """with the batch"""


class AutoPlan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    degrees: Degrees
    kinds: tuple[CutKind, ...]
    vocabulary: Vocabulary = Vocabulary()
    refusals: tuple[CutRefusal, ...] = ()
    samples: int = 1
    """of the batch on which elements were counted"""
    order: tuple[str, ...] = ()
    """blocks as they are called"""
    ends: tuple[End, ...] = ()
    boundary: int = 0
    """elements of what a block hands to the next; 0 where shapes differ"""
    handed: tuple[Handed, ...] = ()
    """what blocks make that is read outside them"""
    tokens: int = 0
    """length of its second axis; 0 where it has no such axis"""
    attention: tuple[tuple[int, int], ...] = ()
    """elements of the keys and of the values of every scaled dot-product attention in the blocks"""
    whole: tuple[str, ...] = ()
    """parameters that FSDP2 does not share out: scalars, and what several blocks use"""
    shared: tuple[str, ...] = ()
    """of these, what several blocks use"""
    roots: tuple[str, ...] = ("",)
    """modules that the training step calls, mostly the model: with them FSDP2 gathers what is outside the blocks"""
    token_means: int = 0
    """means over tokens that a forward pass takes, where their number differs between samples; else 0"""
    version: int = VERSION

    def calls(self, block: str) -> int:
        """How often the block runs in a forward pass."""
        return max(self.order.count(block), 1)

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        """Blocks of each pipeline stage: as even as they come, the first stages one more."""
        blocks, count = len(self.order), self.degrees.pp * self.degrees.vpp
        ends = [(blocks * (stage + 1) + count - 1) // count for stage in range(count)]
        return tuple(self.order[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True))

    def crossing(self, stage: int) -> tuple[Handed, ...]:
        """What a stage takes from the one before it, some of it to pass it on."""
        first = sum(map(len, self.stages[:stage]))
        return tuple(each for each in self.handed if each.place < first <= each.last)

    @property
    def held(self) -> tuple[tuple[int, ...], ...]:
        """Stages of every rank of the pipeline, chunk by chunk."""
        pieces = held_pieces(self.degrees.order, self.degrees.pp, self.degrees.vpp)
        return tuple(tuple(int(piece) for piece in row) for row in pieces)

    def own(self, place: int) -> tuple[str, ...]:
        """Blocks of one rank of the pipeline."""
        stages = self.stages
        return tuple(dict.fromkeys(name for stage in self.held[place] for name in stages[stage]))

    @property
    def blocks(self) -> tuple[str, ...]:
        return tuple(name for kind in self.kinds for name in kind.blocks)

    @property
    def all_refusals(self) -> tuple[CutRefusal, ...]:
        return (*self.refusals, *(each for kind in self.kinds for each in kind.refusals))


def degrees_of(text: str, field: str = "plan") -> Degrees:
    """`fsdp=2,tp=2,micro=4,recompute` in numbers."""
    named = {"dp": "replicas", "fsdp": "dp", "tp": "tp", "pp": "pp", "cp": "cp", "ep": "ep", "vpp": "vpp",
             "micro": "micro_batches"}  # fmt: skip
    found: dict[str, int] = {}
    flags: set[str] = set()
    schedule, offload = "", "none"
    stated: dict[str, str] = {}
    for word in filter(None, text.replace(" ", "").split(",")):
        if "=" in word:
            state_once(stated, word.partition("=")[0], word.partition("=")[2], field)
        if word in ("recompute", "sp"):
            flags.add(word)
            continue
        name, _, value = word.partition("=")
        if name == "offload":
            if value not in OFFLOAD:
                raise ValueError(f"{field}: offload {value!r} is unknown; write {', '.join(OFFLOAD[1:])} or none")
            offload = value
            continue
        if name == "schedule":
            if value not in schedule_names():
                raise ValueError(f"{field}: schedule {value!r} is unknown; {closest(value, list(schedule_names()))}")
            schedule = value
            continue
        if name not in named or not (value.isascii() and value.isdigit()) or not 1 <= int(value) <= 4096:
            raise ValueError(
                f"{field}: {word!r} is not part of a plan; write fsdp=2, tp=2, pp=2, vpp=2, cp=2, ep=2, micro=4, "
                "schedule=gpipe, offload=activations, sp or recompute, joined by commas"
            )
        found[named[name]] = int(value)
    if "dp" in found:
        if found["dp"] == 1 < found.get("replicas", 1):
            raise ValueError(
                f"{field}: fsdp=1 shards nothing; write fsdp=2 or more, or leave dp or fsdp out of {text!r}"
            )
        found["dp"] *= found.get("replicas", 1)
    else:  # dp alone is fsdp: nothing is gained by whole copies
        found["dp"] = found.pop("replicas", 1)
    if "sp" in flags and found.get("tp", 1) == 1:
        raise ValueError(f"{field}: sp shares tokens between the ranks of tp; write tp=2,sp")
    if found.get("ep", 1) > 1 and found["ep"] != found["dp"]:
        ranks = found["ep"]
        raise ValueError(f"{field}: experts are shared out over all ranks of fsdp; write fsdp={ranks},ep={ranks}")
    if (found.get("vpp", 1) > 1 or schedule) and found.get("pp", 1) == 1:
        raise ValueError(f"{field}: {text!r} has no pipeline, whose stages vpp and schedule are about; write pp=2 too")
    if not text.strip(" ,"):
        raise ValueError(f"{field}: {text!r} says nothing; write fsdp=2,tp=2 or the path of a plan")
    if found.get("pp", 1) > 1:
        found.setdefault("micro_batches", 2 * found["pp"])
    elif found.get("micro_batches", 1) > 1:
        raise ValueError(f"{field}: micro-batches are those of a pipeline; write pp=2 too, or leave micro out")
    return Degrees(**found, schedule=schedule, offload=offload, recompute="recompute" in flags, sp="sp" in flags)


def plan_file(path: Path) -> AutoPlan:
    raw = read_file(path, "plan", MOST_BYTES, "a plan that `auto --out` has written, or fsdp=2,tp=2")
    try:
        plan = msgspec.json.decode(raw, type=AutoPlan)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"plan: {path.name} is not a plan ({error}); write one with `shardwise auto --out {path.name}`"
        ) from None
    if plan.version != VERSION:
        raise ValueError(
            f"plan: {path.name} is of version {plan.version}, this reads {VERSION}; write it again with `auto --out`"
        )
    return plan
