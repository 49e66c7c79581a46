"""Runs of `shardwise run` that are killed: started, watched, killed, started again, and held against quiet ones.

A launcher is a fork of this process that runs the command line: torch is imported once for all of them.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from shardwise.run.runtime.checkpoints.folder import newest
from shardwise.run.runtime.checkpoints.manifest import read_manifest
from shardwise.show.cli import main as shardwise

STEPS, EVERY = 10, 2
CONFIG = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
}  # fmt: skip
LAYOUTS = {
    "dp 2": ("2xh100", "--dp", "2", "--zero", "1", "--micro", "3"),
    "dp 2, zero 3": ("2xh100", "--dp", "2", "--zero", "3", "--micro", "3"),
    "tp 2": ("2xh100", "--tp", "2", "--micro", "6"),
    "pp 2": ("2xh100", "--pp", "2", "--micro", "3"),
    "dp 3": ("3xh100", "--dp", "3", "--micro", "2"),
    "one rank": ("1xh100", "--micro", "6"),
    "grpo, lag 2": (
        "1xh100",
        "--micro",
        "6",
        "--algorithm",
        "grpo",
        "--group",
        "3",
        "--rollout-ranks",
        "2",
        "--engine-tp",
        "2",
        "--lag",
        "2",
        "--prompt-tokens",
        "4",
    ),
    "grpo together": (
        "2xh100",
        "--dp",
        "2",
        "--micro",
        "3",
        "--algorithm",
        "grpo",
        "--group",
        "3",
        "--prompt-tokens",
        "4",
    ),
}
PATIENCE_S = 60.0
POLL_S = 0.001


@dataclass
class KilledRun:
    """One folder of checkpoints, one log, and the launchers that work in it one after another."""

    model: Path
    folder: Path
    layout: str
    more: tuple[str, ...] = ()
    kills: int = 0
    pid: int = 0
    told: str = ""
    seen: set[int] = field(default_factory=set)
    """every process of it"""
    semaphores: set[str] = field(default_factory=set)
    """which they were seen to have"""

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    @property
    def errors(self) -> Path:
        return self.folder.with_suffix(".err")

    def start(self, *more: str) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            self._launch(more)
        self.seen.add(self.pid)

    def _launch(self, more: tuple[str, ...]) -> None:
        code = 99
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(os.open(self.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            code = shardwise([
                "run", str(self.model), "--on", *LAYOUTS[self.layout], "--seq", "16", "--global-batch", "6",
                "--device", "cpu", "--steps", str(STEPS), "--every", str(EVERY), "--log", str(self.log),
                "--checkpoints", str(self.folder), *self.more, *more,
            ])  # fmt: skip
        finally:
            sys.stderr.flush()
            os._exit(code)

    def ranks(self) -> list[int]:
        """Oldest first: by rank."""
        found = sorted(children_of(self.pid))
        self.seen.update(found)
        return found

    def wait(self) -> int:
        """Exit code of the launcher."""
        until = monotonic() + PATIENCE_S
        while monotonic() < until:
            self.ranks()
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.told = self.errors.read_text() if self.errors.exists() else ""
                return os.waitstatus_to_exitcode(status)
            sleep(0.01)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise RuntimeError(f"{self.layout} {self.more}: the run did not end; it said:\n{self.errors.read_text()}")

    def kill_when(self, moment: Callable[["KilledRun"], bool], victim: int | None) -> bool:
        """Rank `victim`, or the launcher; False where the run was over before the moment came."""
        until = monotonic() + PATIENCE_S
        while monotonic() < until and not ended(self.pid):
            if moment(self):
                target = self.pid
                if victim is not None:
                    ranks = self.ranks()
                    if len(ranks) <= victim:
                        sleep(POLL_S)
                        continue
                    target = ranks[victim]
                self.look_for_semaphores()
                try:
                    os.kill(target, signal.SIGKILL)
                except ProcessLookupError:
                    return False
                self.kills += 1
                while not ended(target):
                    sleep(POLL_S)
                return True
            sleep(POLL_S)
        return False

    def when(self, moment: Callable[["KilledRun"], bool], do: Callable[[], object]) -> bool:
        """False where the run was over before the moment came."""
        until = monotonic() + PATIENCE_S
        while monotonic() < until and not ended(self.pid):
            if moment(self):
                do()
                return True
            sleep(POLL_S)
        return False

    def look_for_semaphores(self) -> None:
        for pid in (self.pid, *self.ranks()):
            try:
                maps = Path(f"/proc/{pid}/maps").read_text()
            except OSError:
                continue
            self.semaphores.update(Path(line.split()[-1]).name for line in maps.splitlines() if "/dev/shm/sem." in line)

    def losses(self) -> list[tuple[int, float]]:
        """Of every step that was made, those that were made again too."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        found = [json.loads(line) for line in lines]
        return [(line["step"], line["loss"]) for line in found]

    def weights(self) -> dict[tuple[str, tuple[int, ...]], str]:
        """Checksum of every block of the last checkpoint."""
        path = newest(self.folder)
        blocks = read_manifest(path)[0].blocks if path is not None else ()
        return {(block.tensor, block.offsets): block.sha256 for block in blocks}

    def orphans(self) -> int:
        """Processes that live on two seconds after the end."""
        until = monotonic() + 2.0
        while any(not ended(pid) for pid in self.seen) and monotonic() < until:
            sleep(0.01)
        return sum(not ended(pid) for pid in self.seen)

    def leftovers(self) -> list[str]:
        files = [path.name for path in self.folder.iterdir() if path.name.startswith(".") or ".aside" in path.name]
        return files + [name for name in self.semaphores if Path("/dev/shm", name).exists()]


def steps_made(count: int) -> Callable[[KilledRun], bool]:
    return lambda run: not count or (run.log.exists() and run.log.read_bytes().count(b"\n") >= count)


def during_save(run: KilledRun) -> bool:
    """Half of the second one is on the disk."""
    return any(run.folder.glob("step-*")) and any(run.folder.glob(".step-*/*"))


def after(seconds: float) -> Callable[[KilledRun], bool]:
    """So long after its ranks began: while they meet, load or make their first step."""
    begin: list[float] = []

    def come(run: KilledRun) -> bool:
        if not begin and run.ranks():
            begin.append(monotonic())
        return bool(begin) and monotonic() - begin[0] >= seconds

    return come


def restarted_and(moment: Callable[[KilledRun], bool]) -> Callable[[KilledRun], bool]:
    """The moment, but of ranks that were not there when this was asked first."""
    before: list[set[int]] = []

    def come(run: KilledRun) -> bool:
        now = set(run.ranks())
        if not before:
            before.append(now)
        return bool(now) and not now & before[0] and moment(run)

    return come


def children_of(parent: int) -> list[int]:
    try:
        found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return []
    return [int(child) for child in found if not ended(int(child))]


def ended(pid: int) -> bool:
    """Gone, or a zombie whose parent has yet to look."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True
