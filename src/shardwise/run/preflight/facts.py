"""A node's facts as a file: written on each node, compared on one."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from shardwise.fields import read_file
from shardwise.run.preflight.measurements import Measurements
from shardwise.run.preflight.node import COMMAND_S, LiveNode, Printed

VERSION = 1
MARK = b'"shardwise_preflight"'
MOST_BYTES = 32 * 2**20
MOST_NODES = 20_000
WANTED = "what `shardwise preflight --facts` prints on a node"


class Facts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    shardwise_preflight: int
    host: str
    time_s: float
    commands: dict[str, Printed | None]
    files: dict[str, str | None]
    folders: dict[str, list[str]]
    environment: dict[str, str]
    packages: dict[str, str]
    measured: Measurements


@dataclass(frozen=True)
class RecordedNode:
    """A node as it was, from its facts."""

    facts: Facts
    host: str

    @property
    def environment(self) -> Mapping[str, str]:
        return self.facts.environment

    @property
    def packages(self) -> Mapping[str, str]:
        return self.facts.packages

    @property
    def measured(self) -> Measurements:
        return self.facts.measured

    def run(self, command: str, keep: str = "", seconds: float = COMMAND_S) -> Printed | None:  # noqa: ARG002
        return self.facts.commands.get(command)

    def read(self, path: str) -> str | None:
        return self.facts.files.get(path)

    def names(self, path: str) -> list[str]:
        return self.facts.folders.get(path, [])


def facts_of(node: "LiveNode | RecordedNode") -> Facts:
    if isinstance(node, RecordedNode):
        return node.facts
    return Facts(
        shardwise_preflight=VERSION, host=node.host, time_s=time.time(), commands=node.commands, files=node.files,
        folders=node.folders, environment=dict(node.environment), packages=dict(node.packages),
        measured=node.measured,
    )  # fmt: skip


def encoded(facts: Facts) -> bytes:
    return msgspec.json.encode(facts)


def decoded(raw: bytes, where: str) -> Facts:
    try:
        found = msgspec.json.decode(raw, type=Facts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{where} holds no facts of a node ({error}); write {WANTED}") from None
    if found.shardwise_preflight != VERSION:
        raise ValueError(f"{where} is of version {found.shardwise_preflight}, not {VERSION}; write it again")
    if not found.host or len(found.host) > 253 or not found.host.isprintable():
        raise ValueError(f"{where}: host is {found.host[:60]!r}; write the name of a host")
    return found


def read_facts(path: Path) -> Facts:
    return decoded(read_file(path, "gather", MOST_BYTES, WANTED), f"gather: {path.name!r}")


def nodes_from(paths: Sequence[Path]) -> list[RecordedNode]:
    """All nodes of these files and of the .json files of these folders; one that is there twice counts once, as it was
    last seen."""
    files: list[Path] = []
    for path in paths:
        try:
            files += sorted(path.glob("*.json")) if path.is_dir() else [path]
        except OSError as error:
            raise ValueError(f"gather: {str(path)!r} cannot be read ({error.strerror}); write {WANTED}") from None
        if len(files) > MOST_NODES:
            raise ValueError(f"gather: more than {MOST_NODES:,} files; write fewer")
    if not files:
        raise ValueError(f"gather: no file in {', '.join(map(str, paths))[:200]}; write {WANTED}")
    found: dict[str, Facts] = {}
    for facts in sorted(map(read_facts, files), key=lambda each: each.time_s):
        found[facts.host] = facts
    return recorded(list(found.values()))


def recorded(facts: Sequence[Facts]) -> list[RecordedNode]:
    """As nodes, in this order; two on one host (a test of two launchers) get numbers."""
    nodes, seen = [], dict[str, int]()
    for each in facts:
        number = seen[each.host] = seen.get(each.host, 0) + 1
        nodes.append(RecordedNode(each, each.host if number == 1 else f"{each.host}#{number}"))
    return nodes
