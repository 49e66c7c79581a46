"""A training in a lab as `shardwise run` makes it, while something is done to it; and what it left behind."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from shardwise.interpreter import python_command, python_environment
from shardwise.measured.record.writer import rank_file
from shardwise.run.runtime.parent import die_with_parent
from shardwise_lab.build import Built
from shardwise_lab.cables import host_address
from shardwise_lab.faults import Fault, happen
from shardwise_lab.jobs import quick_job
from shardwise_lab.launch import UNNAMED
from shardwise_lab.order import RunOrder

POLL_S = 0.01
STEPS, EVERY, ONSET = 56, 10, 28
"""steps of a run, between checkpoints, and after which something goes wrong"""
TIMEOUT_S = 4.0
"""that a rank waits for a message"""
RESTARTS = 2


@dataclass
class ChaosRun:
    built: Built
    folder: Path
    process: subprocess.Popen[bytes]
    until: float
    """on the monotonic clock: it is ended then"""
    fault_s: float = 0.0
    """when it happened, on the monotonic clock"""
    noted: dict[str, float] = field(default_factory=dict)
    """words of the run -> seconds from the fault until it said them"""

    @property
    def records(self) -> Path:
        return self.folder / "records"

    def said(self) -> str:
        path = self.folder / "stderr.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def steps(self) -> list[dict[str, float]]:
        """Lines of the log, in the order in which steps were made: after a restart some are made again."""
        path = self.folder / "steps.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith(b"}")]

    def rank_pid(self, rank: int) -> int:
        """Of its last beginning."""
        lines = rank_file(self.records, rank).read_text(encoding="utf-8").splitlines()
        heads = [json.loads(line)["head"] for line in lines if line.startswith('{"head"')]
        return int(heads[-1]["pid"])

    def wait_for_step(self, step: int) -> None:
        while not any(line["step"] >= step for line in self.steps()):
            self._still_there(f"step {step}")

    def wait_for_words(self, words: str) -> None:
        while words not in self.said():
            self._still_there(repr(words))
        self.noted[words] = time.monotonic() - self.fault_s

    def _still_there(self, what: str) -> None:
        if self.process.poll() is not None:
            last = self.said().strip().splitlines()
            raise RuntimeError(
                f"lab: the run ended before {what}: {last[-1][:300] if last else self.process.returncode}"
            )
        if time.monotonic() > self.until:
            raise ValueError(f"limit: the run had not come to {what} in time; write a longer --limit")
        time.sleep(POLL_S)

    def put_in(self, fault: Fault) -> None:
        self.fault_s = time.monotonic()
        happen(self.built, fault)

    def kill_rank(self, rank: int) -> None:
        self.fault_s = time.monotonic()
        os.kill(self.rank_pid(rank), signal.SIGKILL)

    def ended(self) -> int:
        """Its exit code."""
        while self.process.poll() is None:
            if time.monotonic() > self.until:
                raise ValueError("limit: the run was not done in time; write a longer --limit")
            time.sleep(POLL_S)
        return int(self.process.returncode)


@contextmanager
def training(built: Built, folder: Path, limit_s: float) -> Iterator[ChaosRun]:
    """Ranks die with their launcher, and that with this block."""
    order = RunOrder(
        spaces=tuple(built.hosts), address=host_address(0), interface=built.fabric.interface,
        job=quick_job(built.fabric.gpus), folder=str(folder), steps=STEPS, every=EVERY, timeout_s=TIMEOUT_S,
        max_restarts=RESTARTS,
    )  # fmt: skip
    with (folder / "stderr.log").open("ab") as said:
        process = subprocess.Popen(
            python_command("shardwise_lab.ranks.run"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=said, preexec_fn=die_with_parent, env=python_environment(**UNNAMED),
        )  # fmt: skip
        try:
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(order))
            process.stdin.close()
            yield ChaosRun(built, folder, process, time.monotonic() + limit_s)
        finally:
            process.kill()
            process.wait()
