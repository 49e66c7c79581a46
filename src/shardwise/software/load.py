"""Stacks from the catalog's files: inheritance, origins, and errors that name file and field."""

import re
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec

from shardwise import catalog
from shardwise.registry import closest
from shardwise.software.origin import Origin, stated
from shardwise.software.stack import PARTS, Provenance, Stack
from shardwise.spec.model import Model

HEAD = tuple(name for name in Stack.__struct_fields__ if name not in (*PARTS, "provenance"))
"""what a file states at its top, about the stack itself"""
MOST = 1e15
INHERITED = ("caution", "compiled", "uncompiled")
"""what of it a stack takes over from the one it is like"""


def _own(name: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, Origin]]:
    """What a stack's own file has: (its head, settings by part, origin of each)."""
    data = catalog.entry("stacks", name)
    file = f"stack {name}.toml"
    head: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    origins: dict[str, Origin] = {}
    for key, value in data.items():
        if key in HEAD:
            head[key] = value
        elif key not in PARTS:
            raise ValueError(f"{file}: {key!r} is unknown at the top; {closest(key, [*HEAD, *PARTS])}")
        elif not isinstance(value, dict):
            raise ValueError(f"{file}: {key!r} is {value!r}; write a table [{key}] of settings")
    for part in (key for key in data if key in PARTS):
        known = PARTS[part].__struct_fields__
        for setting, value in data[part].items():
            if setting not in known:
                raise ValueError(f"{file}: {setting!r} is unknown in [{part}]; {closest(setting, _near(part))}")
            where = f"{file}: {part}.{setting}"
            if isinstance(value, dict) and "like" in value:
                found, origins[setting] = _taken(value, setting, where)
            else:
                found, origins[setting] = stated(
                    value, where=where, stack=name, source=data.get("source", ""), fitted_on=data.get("fitted_on", "")
                )
            _check_number(found, where)
            parts.setdefault(part, {})[setting] = found
    return head, parts, origins


def _check_number(value: Any, where: str) -> None:
    """No time, size, share or count of a program is negative, and none is beyond what a step can take."""
    if isinstance(value, int | float) and not 0 <= value <= MOST:
        raise ValueError(f"{where} is {value!r}; write a number from 0 to {MOST:g}")


def _taken(value: dict[str, Any], setting: str, where: str) -> tuple[Any, Origin]:
    """`{ like = "megatron-core" }`: the number of another stack, which stays where it comes from; `setting` where it
    has another name there."""
    for key in value:
        if key not in ("like", "setting"):
            raise ValueError(f"{where}: {key!r} is unknown beside 'like'; {closest(key, ['setting'])}")
    other, name = known_stack(_named(value, "like", where)), _named({"setting": setting} | value, "setting", where)
    return other.setting(name), other.origin(name)


def _named(fields: dict[str, Any], key: str, where: str) -> str:
    name = fields[key]
    if not isinstance(name, str):
        raise ValueError(f"{where}: {key} is {name!r}; write a name in quotes")
    return name


def _near(part: str) -> list[str]:
    """Settings of this part, then those of the others: one may have been written into the wrong table."""
    others = [
        f"{other}.{name}" for other, struct in PARTS.items() if other != part for name in struct.__struct_fields__
    ]
    return [*PARTS[part].__struct_fields__, *others]


@cache
def stack_of(name: str) -> Stack:
    head, parts, origins = _own(name)
    base: Stack | None = stack_of(_named(head, "like", f"stack {name}.toml")) if "like" in head else None
    found: dict[str, Any] = {} if base is None else {key: getattr(base, key) for key in INHERITED}
    found |= head
    for part, struct in PARTS.items():
        inherited = {} if base is None else msgspec.structs.asdict(getattr(base, part))
        found[part] = _converted(name, part, inherited | parts.get(part, {}), struct)
    known = dict(base.origins) if base is not None else {}
    try:
        stack = msgspec.convert({key: found[key] for key in found if key not in PARTS}, Stack)
    except msgspec.ValidationError as error:
        raise ValueError(f"stack {name}.toml: {error}") from None
    return msgspec.structs.replace(
        stack,
        provenance=Provenance(tuple((known | origins).items()), tuple(origins)),
        **{part: found[part] for part in PARTS},
    )


def _converted(name: str, part: str, settings: dict[str, Any], struct: type[msgspec.Struct]) -> msgspec.Struct:
    try:
        return msgspec.convert(settings, struct)
    except msgspec.ValidationError as error:
        raise ValueError(f"stack {name}.toml: [{part}] {error}") from None


UNNAMED = "generic"
"""what a `software` text that names no known program is taken as"""


COMPILED = re.compile(r"\btorch\.compile\b|\bcompiled?\b")
UNCOMPILED = re.compile(r"\beager\b|\b(?:no|not|without)\s+(?:torch\.)?compiled?\b")
LIGER = re.compile(r"\bliger\b")
DEEPSPEED = re.compile(r"\bdeepspeed\b")
TRANSFORMER_ENGINE = re.compile(r"\btransformer engine\b")
BESIDE = ((LIGER, "liger"), (TRANSFORMER_ENGINE, "transformer-engine"), (DEEPSPEED, "deepspeed-hugging-face"))
"""what a text names beside an eager PyTorch program -> the stack whose file states what is different then"""
EXPOSED = re.compile(r"\b(?:no|not|without)\s+overlap")
"""traffic that no compute runs beside, as a source says of its own run"""

UNSTATED = "(not stated)"
TEXTS = 1024
"""`software` texts remembered: a table has thousands of rows and few programs"""


class Match(NamedTuple):
    """The stack that is meant, and what said so."""

    stack: Stack
    piece: str
    """of a `software` text: the part that names the stack, empty where none does; else the stack's own name"""
    text: str = ""
    """the whole `software` text; empty where the stack itself was named"""

    @property
    def known(self) -> bool:
        return bool(self.piece)

    @property
    def note(self) -> str:
        """What has to be said where nothing is known of the program."""
        return "" if self.known else f"software {self.text!r} is not known; taken as {self.stack.name}"

    @property
    def rivals(self) -> tuple[Stack, ...]:
        """Other stacks that pass as the same program, where its name was given and no release."""
        passing = _passing_as(self.piece)
        if self.stack.name not in passing:
            return ()
        return tuple(stack_of(name) for name in passing if name != self.stack.name)


@cache
def _passing_as(program: str) -> tuple[str, ...]:
    """Names of the stacks that stand for a program."""
    return tuple(name for name in catalog.mentioning("stacks", program) if program in stack_of(name).programs)


@lru_cache(TEXTS)
def match_of(software: str) -> Match:
    """The longest piece wins, of a program before one of a library; UNNAMED where nothing matches."""
    text = software.lower()
    found = [
        (not stack.library, len(piece), piece, stack)
        for stack in map(stack_of, catalog.names("stacks"))
        for piece in stack.matches
        if piece in text
    ]
    if not found:
        return Match(_as_stated(stack_of(UNNAMED), text), "", software)
    *_, piece, stack = max(found, key=lambda each: each[:2])
    return Match(_as_stated(stack, text), piece, software)


def _as_stated(stack: Stack, text: str) -> Stack:
    """The stack with what the text says besides a name: PyTorch programs run the same with and without a compiler, and
    with kernels of Liger's."""
    eager = UNCOMPILED.search(text) is not None
    if COMPILED.search(text) and not eager and stack.compiled:
        stack = stack.taking_over(stack_of(stack.compiled))
    if eager and stack.uncompiled:
        stack = stack.taking_over(stack_of(stack.uncompiled))
    for named_kernels, other in BESIDE:
        if stack.compiled and named_kernels.search(text):
            stack = stack.taking_over(stack_of(other))
    if EXPOSED.search(text):
        stack = stack.changed(overlap_grad=False, overlap_param=False, overlap_tp=False)
    return stack


def stack_for(software: str) -> Stack:
    """The stack a `software` text names, which remembers the text; UNNAMED when nothing matches."""
    stack, text = match_of(software).stack, software.strip() or UNSTATED
    return msgspec.structs.replace(stack, provenance=msgspec.structs.replace(stack.provenance, called=text))


def named(stack: Stack) -> Match:
    """How the stack came to be meant: by a text, or by its own name."""
    return match_of(stack.called) if stack.called else Match(stack, stack.name)


def known_stack(name: str) -> Stack:
    names = catalog.names("stacks")
    if name not in names:
        raise ValueError(f"stack: {name!r} is unknown; {closest(name, names)}")
    return stack_of(name)


def running(stack: Stack, model: Model, compute: str) -> Stack:
    """The settings as they are for a model and a compute dtype."""
    if compute == "bf16" and stack.in_bf16:
        stack = stack.taking_over(stack_of(stack.in_bf16))
    experts = stack.experts
    if model.streams > 1:
        # DeepSeek-V4's recipes leave the exchange exposed (Megatron-Bridge, perf_recipes/deepseek/*/deepseek_v4.py)
        stack = stack.changed(overlap_ep=experts.hybrid_overlap_ep, overlap_ep_between_nodes=-1.0)
    if not model.hybrid:
        return stack
    launches = experts.hybrid_ops_per_expert_layer
    return stack.changed(
        overlap_ep=experts.hybrid_overlap_ep,
        overlap_ep_between_nodes=-1.0,
        ops_per_expert_layer=experts.ops_per_expert_layer if launches < 0 else launches,
        ops_per_expert_layer_in_node=-1.0,
        ops_per_expert_layer_in_rack=-1.0,
    )
