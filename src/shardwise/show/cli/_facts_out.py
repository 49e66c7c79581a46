"""Where `shardwise preflight --out` writes the facts of nodes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shardwise.run.preflight.facts import MARK, RecordedNode, encoded, facts_of
from shardwise.run.preflight.node import LiveNode
from shardwise.whole_file import OutputFile


@dataclass(frozen=True)
class FactsOut:
    """Where facts go: a file, or a folder with a file for each host."""

    path: Path
    overwrite: bool

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            OutputFile(self.path, "out", MARK, self.overwrite)

    def write(self, nodes: "Sequence[LiveNode | RecordedNode]") -> list[str]:
        if not self.path.is_dir() and len(nodes) > 1:
            raise ValueError(
                f"out: {str(self.path)!r} is one file for {len(nodes)} nodes; write a folder that is there"
            )
        written = []
        for node in nodes:
            path = self.path / f"{re.sub(r'[^A-Za-z0-9._-]', '_', node.host)}.json" if self.path.is_dir() else self.path
            OutputFile(path, "out", MARK, self.overwrite).write(encoded(facts_of(node)) + b"\n")
            written.append(str(path))
        return written
