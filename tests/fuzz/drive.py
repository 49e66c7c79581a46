"""Workers watched from outside: one that is silent for too long, or dies, is a finding, and another takes its place."""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HANG_S = 20.0
"""of its own processor time, or of waiting for something that does not come: a busy machine is no hang"""
IDLE_S = 1.0
"""processor time of a process that only waits"""
TICKS = os.sysconf("SC_CLK_TCK")
TESTS = Path(__file__).resolve().parents[1]


@dataclass
class Findings:
    inputs: int = 0
    peak_rss_bytes: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)

    def count(self, *kinds: str) -> int:
        return sum(failure["kind"] in kinds for failure in self.failures)

    @property
    def summary(self) -> dict[str, int]:
        return {
            "inputs": self.inputs, "tracebacks": self.count("traceback", "died"), "hangs": self.count("hang"),
            "peak_rss_bytes": self.peak_rss_bytes, "wrong_exit_codes": self.count("wrong exit code"),
            "over_memory": self.count("memory"), "replaced": self.count("replaced"),
            "left_behind": self.count("left behind"),
        }  # fmt: skip


class _Worker:
    def __init__(self, seed: str, numbers: range) -> None:
        self.seed, self.numbers = seed, numbers
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])}
        words = [sys.executable, "-m", "fuzz.worker", seed, *map(str, (numbers.start, numbers.stop, numbers.step))]
        # a file, not a pipe: nobody reads it while the worker lives
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=self.errors, stdin=subprocess.DEVNULL, env=variables, bufsize=0
        )
        self.now: int | None = None
        self.what = ""
        self.heard, self.spent, self.queued = time.monotonic(), 0.0, 0.0
        self.rest = b""

    @property
    def cpu_s(self) -> float:
        user, system = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / TICKS

    @property
    def queued_s(self) -> float:
        """How long it was ready to run while others did."""
        try:
            return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):  # a kernel that does not count it
            return 0.0

    @property
    def hangs(self) -> bool:
        silent = time.monotonic() - self.heard
        if self.now is None or silent < HANG_S:
            return False
        spent, queued = self.cpu_s - self.spent, self.queued_s - self.queued
        return spent > HANG_S or (spent < IDLE_S and silent - queued >= HANG_S)

    def lines(self) -> list[dict[str, Any]]:
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        *whole, self.rest = (self.rest + data).split(b"\n")
        self.heard, self.spent, self.queued = time.monotonic(), self.cpu_s, self.queued_s
        return [json.loads(line) for line in whole]

    def end(self) -> str:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.seek(0)
        told = self.errors.read()[-400:].decode(errors="replace")
        self.errors.close()
        return told

    def without(self, number: int) -> "_Worker | None":
        """The same for what comes after this input."""
        left = range(number + self.numbers.step, self.numbers.stop, self.numbers.step)
        return _Worker(self.seed, left) if left else None


def drive(
    inputs: int, seed: str = "0", workers: int = 2, first: int = 0, progress: Callable[[Findings], None] | None = None
) -> Findings:
    """Every input from number `first` on."""
    found = Findings()
    running = [_Worker(seed, range(first + k, first + inputs, workers)) for k in range(min(workers, inputs))]
    while running:
        with selectors.DefaultSelector() as waiting:
            for worker in running:
                waiting.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
            for key, _ in waiting.select(1.0):
                worker = key.data
                told = worker.lines()
                for line in told:
                    _note(found, worker, line)
                if not told and worker.process.poll() is not None:
                    running.remove(worker)
                    running += _after(found, worker, "died")
        for worker in list(running):
            if worker.hangs:
                running.remove(worker)
                running += _after(found, worker, "hang")
        if progress is not None:
            progress(found)
    return found


def _note(found: Findings, worker: _Worker, line: dict[str, Any]) -> None:
    found.peak_rss_bytes = max(found.peak_rss_bytes, line.get("rss", 0))
    if "begin" in line:
        worker.now, worker.what = line["begin"], "made but not begun"
    worker.what = line.get("run", worker.what)
    if "end" not in line:
        return
    worker.now = None
    found.inputs += 1
    found.slowest = sorted([*found.slowest, (line["seconds"], line["what"])], reverse=True)[:10]
    if line["kind"] != "fine":
        found.failures.append({"number": line["end"], "kind": line["kind"], "why": line["why"], "what": line["what"]})


def _after(found: Findings, worker: _Worker, kind: str) -> list[_Worker]:
    """A worker that ended: whole, or in the middle of an input."""
    told = worker.end()
    if worker.now is None and kind == "died" and worker.process.returncode == 0:
        return []
    if worker.now is None:
        raise RuntimeError(f"a worker of the fuzzer does not start: {told}")
    found.inputs += 1
    found.failures.append({"number": worker.now, "kind": kind, "why": told, "what": worker.what})
    again = worker.without(worker.now)
    return [again] if again else []


def by_place(found: Findings) -> list[tuple[int, str]]:
    """How often each kind of failure was seen, the most frequent first."""
    return [(n, why) for why, n in Counter(f"{f['kind']}: {f['why'][:160]}" for f in found.failures).most_common()]
