"""Finished cells of `auto.py` in a file: a run that was stopped goes on where it ended."""

import hashlib
import json
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import shardwise.run.auto
from shardwise.whole_file import moved_to

MINUTE_S = 60.0


def digest_of_sources() -> str:
    """Of what splits and proves: cells of other sources are run again."""
    files = [*Path(shardwise.run.auto.__path__[0]).glob("*.py"), *Path(__file__).parent.glob("_auto_*.py")]
    content = b"".join(path.read_bytes() for path in sorted(files))
    return hashlib.sha256(content).hexdigest()[:16]


class FinishedCells:
    """What cells gave, by program, plan, steps, dtype and optimizer. Without a path nothing is kept behind this run.
    `older`: cells of other sources are not run again."""

    def __init__(
        self, path: Path | None, steps: int, dtype: str, minutes: float | None, *, older: bool, optimizer: str
    ) -> None:
        self.path, self.steps, self.dtype, self.optimizer = path, steps, dtype, optimizer
        self.start = monotonic()
        self.stop = None if minutes is None else self.start + minutes * MINUTE_S
        self.digest = digest_of_sources()
        self.found: dict[str, Any] = {}
        if path is not None and path.exists():
            kept = json.loads(path.read_text())
            self.found = {key: each for key, each in kept.items() if older or each["sources"] == self.digest}
        self.ran = 0

    def key(self, program: str, what: str) -> str:
        return f"{program} {what} {self.steps} {self.dtype} {self.optimizer}"

    def get(self, program: str, what: str) -> Any:
        return self.found.get(self.key(program, what), {}).get("facts")

    def is_older(self, program: str, what: str) -> bool:
        return bool(self.found.get(self.key(program, what), {}).get("sources", self.digest) != self.digest)

    def add(self, program: str, what: str, facts: Any) -> None:
        self.found[self.key(program, what)] = {"sources": self.digest, "facts": facts}
        if self.path is not None:
            with moved_to(self.path) as file:
                file.write(json.dumps(self.found, indent=1).encode())

    @property
    def late(self) -> bool:
        return self.stop is not None and monotonic() > self.stop

    def tell(self, line: str, place: int, of: int) -> None:
        self.ran += 1
        each = (monotonic() - self.start) / self.ran
        left = f"{each * (of - place) / MINUTE_S:.0f} min left"
        print(f"[{place}/{of}, {each:.1f} s a cell, {left}] {line}", file=sys.stderr, flush=True)
