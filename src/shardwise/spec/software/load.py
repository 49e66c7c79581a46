"""Programs and their releases from the catalog's files: inheritance, origins, errors that name file and field.

`PROGRAM` is what its file states, `PROGRAM@RELEASE` that with what `[releases.RELEASE]` states. A fact of a run
(catalog/facts.toml) is not a program: it changes one.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from shardwise import catalog
from shardwise.fields import short
from shardwise.registry import closest
from shardwise.spec.model import Model
from shardwise.spec.software.origin import Origin, stated
from shardwise.spec.software.stack import PARTS, Provenance, Stack, part_of

AT = "@"
FACT = "fact:"
FACTS = Path(catalog.__file__).parent / "facts.toml"
FITTED = Path(catalog.__file__).parent / "fitted.toml"
"""every number that measured runs taught, by program, with what holds it"""
HEAD = tuple(name for name in Stack.__struct_fields__ if name not in (*PARTS, "provenance"))
"""what a file states at its top, about the stack itself"""
MOST = 1e15
INHERITED = ("caution", "compiled", "uncompiled")
"""what of it a stack takes over from the one it is like"""


@cache
def stack_names() -> tuple[str, ...]:
    """Every program, and every release of each, as `--stack` takes them."""
    return tuple(name for program in catalog.names("programs") for name in names_of(program))


@cache
def names_of(program: str) -> tuple[str, ...]:
    """A program and its releases."""
    releases = catalog.entry("programs", program).get("releases", {})
    if not isinstance(releases, dict) or not all(isinstance(stated, dict) for stated in releases.values()):
        raise ValueError(
            f"program {program}.toml: releases is {short(releases)}; write a table [releases.NAME] for each"
        )
    return (program, *(f"{program}{AT}{release}" for release in releases))


def releases_of(name: str) -> tuple[str, ...]:
    """Releases of a program that its file tells apart; none of a release."""
    return () if AT in name else tuple(each.partition(AT)[2] for each in names_of(name)[1:])


@cache
def _former() -> dict[str, str]:
    """Former name -> name."""
    return {was: name for name in stack_names() for was in _stated(name).get("was", ())}


def _stated(name: str) -> dict[str, Any]:
    """What a program's file states of it, a release, or a fact."""
    if name.startswith(FACT):
        fact = name.removeprefix(FACT)
        return {"name": fact, **_facts()[fact]}
    program, _, release = name.partition(AT)
    data = catalog.entry("programs", program)
    releases = data.pop("releases", {})
    if release and release not in releases:
        raise ValueError(f"stack: {program} has no release {release!r}; {closest(release, list(releases))}")
    return _with_fitted({"name": name, "like": program, **releases[release]} if release else data)


def _with_fitted(data: dict[str, Any]) -> dict[str, Any]:
    """With the numbers that measured runs taught of it, in their parts."""
    for key, value in _fitted().get(data.get("name", ""), {}).items():
        if key in HEAD:
            data[key] = value
        else:
            data.setdefault(part_of(key), {})[key] = value
    return data


@cache
def _fitted() -> dict[str, dict[str, Any]]:
    return tomllib.loads(FITTED.read_text(encoding="utf-8"))


@cache
def _facts() -> dict[str, Any]:
    return tomllib.loads(FACTS.read_text(encoding="utf-8"))


def _own(name: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, Origin]]:
    """What a program's file states: (its head, settings by part, origin of each)."""
    data = _stated(name)
    file = f"program {name}.toml"
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
            raise ValueError(f"{where}: {key!r} is unknown next to 'like'; {closest(key, ['setting'])}")
    other, name = _other(_named(value, "like", where)), _named({"setting": setting} | value, "setting", where)
    return other.setting(name), other.origin(name)


def _other(name: str) -> Stack:
    return stack_of(name) if name.startswith(FACT) else known_stack(name)


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
    base: Stack | None = stack_of(_named(head, "like", f"program {name}.toml")) if head.get("like") else None
    found: dict[str, Any] = {} if base is None else {key: getattr(base, key) for key in INHERITED}
    found |= head
    for part, struct in PARTS.items():
        inherited = {} if base is None else msgspec.structs.asdict(getattr(base, part))
        found[part] = _converted(name, part, inherited | parts.get(part, {}), struct)
    known = dict(base.origins) if base is not None else {}
    try:
        stack = msgspec.convert({key: found[key] for key in found if key not in PARTS}, Stack)
    except msgspec.ValidationError as error:
        raise ValueError(f"program {name}.toml: {error}") from None
    return msgspec.structs.replace(
        stack,
        provenance=Provenance(tuple((known | origins).items()), tuple(origins)),
        **{part: found[part] for part in PARTS},
    )


def _converted(name: str, part: str, settings: dict[str, Any], struct: type[msgspec.Struct]) -> msgspec.Struct:
    try:
        return msgspec.convert(settings, struct)
    except msgspec.ValidationError as error:
        raise ValueError(f"program {name}.toml: [{part}] {error}") from None


def is_known(name: str) -> bool:
    """Whether a program or a release has this name today."""
    program = name.partition(AT)[0]
    return program in catalog.names("programs") and name in names_of(program)


def is_former(name: str) -> bool:
    """Whether a program or a release had this name, which no other has today."""
    return not is_known(name) and name in _former()


def known_stack(name: str) -> Stack:
    """The stack of that name, or of that former name."""
    if is_known(name):
        return stack_of(name)
    if not is_former(name):
        raise ValueError(f"stack: {name!r} is unknown; {closest(name, list(stack_names()))}")
    return stack_of(_former()[name])


def running(stack: Stack, model: Model, compute: str) -> Stack:
    """The settings as they are for a model and a compute dtype."""
    if compute == "bf16" and stack.in_bf16:
        stack = stack.taking_over(stack_of(stack.in_bf16))
    if model.streams > 1 or model.hybrid:
        # DeepSeek-V4's recipes leave the exchange exposed (Megatron-Bridge, perf_recipes/deepseek/*/deepseek_v4.py);
        # no layer of a hybrid model has compute beside its exchange (NVIDIA/Megatron-LM issue 5854)
        stack = stack.changed(overlap_ep=0.0, overlap_ep_between_nodes=-1.0)
    if not model.hybrid:
        return stack
    # their recipes take the grouped path that waits for the token counts in every expert layer (perf_recipes/nemotronh)
    return stack.changed(ops_per_expert_layer_in_node=-1.0, ops_per_expert_layer_in_rack=-1.0)
