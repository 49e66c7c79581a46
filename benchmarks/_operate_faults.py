"""Faults put into real runs of `shardwise run` on gloo ranks: from outside (signals, a small disk, a shaped network,
damaged files), or inside a forked launcher, by replacing functions of the runtime before it begins. `doctor` is asked.

A launcher is a fork of this process, and its ranks are forks of it: torch is imported once for all of them.
"""

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, sleep
from typing import Any

from shardwise.show.cli import main as shardwise

DENSE = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
}  # fmt: skip
EXPERTS = DENSE | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
LAYOUTS = {
    "dp2": ("dense", "2xh100", "--dp", "2", "--micro", "3"),
    "dp3": ("dense", "3xh100", "--dp", "3", "--micro", "2"),
    "zero3": ("dense", "2xh100", "--dp", "2", "--zero", "3", "--micro", "3"),
    "tp2": ("dense", "2xh100", "--tp", "2", "--micro", "6"),
    "pp2": ("dense", "2xh100", "--pp", "2", "--micro", "3"),
    "ep2": ("experts", "2xh100", "--dp", "2", "--ep", "2", "--micro", "3"),
}
STEPS, EVERY, ONSET = 68, 20, 32
PATIENCE_S = 300.0
CLONE_NEWNET = 0x40000000


@dataclass
class Fault:
    name: str
    """what was put in; empty: nothing"""
    layout: str
    expect: tuple[str, ...] = ()
    """codes that name it; empty: none may be named"""
    rank: int | None = None
    """that must be named with it"""
    inside: Callable[[], None] = lambda: None
    """in the launcher, before it begins"""
    outside: Callable[["FaultyRun"], None] = lambda _: None
    """here, while it runs"""
    afterwards: Callable[["FaultyRun"], None] = lambda _: None
    more: tuple[str, ...] = ()
    small_disk: bool = False
    needs: frozenset[str] = frozenset()
    """of this machine: network (a namespace and tc), disk (to mount a small one)"""


@dataclass
class FaultyRun:
    fault: Fault
    folder: Path
    pid: int = 0
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def records(self) -> Path:
        return self.folder / "records"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def steps(self) -> int:
        path = self.records / "rank-00000.jsonl"
        return path.read_bytes().count(b'{"step"') if path.exists() else 0

    def pace_s(self) -> float:
        """Of the steps so far."""
        lines = (self.records / "rank-00000.jsonl").read_bytes().splitlines()
        return median(json.loads(line)["step_s"] for line in lines if line.startswith(b'{"step"') and line[-1:] == b"}")

    def rank_pid(self, rank: int) -> int:
        path = self.records / f"rank-{rank:05}.jsonl"
        return int(json.loads(path.read_text().splitlines()[0])["head"]["pid"])

    def wait_for(self, steps: int) -> bool:
        until = monotonic() + PATIENCE_S
        while self.steps() < steps:
            if monotonic() > until or _ended(self.pid):
                return False
            sleep(0.002)
        return True

    @property
    def named(self) -> bool:
        causes = self.answer["causes"]
        if not self.fault.expect:
            return not causes
        return (
            bool(causes)
            and causes[0]["cause"] in self.fault.expect
            and (self.fault.rank is None or causes[0]["rank"] == self.fault.rank)
        )


def run_fault(fault: Fault, models: dict[str, Path], folder: Path) -> FaultyRun:
    run = FaultyRun(fault, folder)
    folder.mkdir(parents=True)
    with _small_disk(run.checkpoints) if fault.small_disk else _plain(run.checkpoints):
        run.pid = os.fork()
        if run.pid == 0:
            _launch(run, models)
        fault.outside(run)
        _waited(run)
        fault.afterwards(run)
        run.answer = asked(run)
    return run


def asked(run: FaultyRun) -> dict[str, Any]:
    """What `doctor` says, as a user would ask it: in a process of its own."""
    out = run.folder / "doctor.json"
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
            sys.stdout = os.fdopen(1, "w")
            code = shardwise(["doctor", str(run.folder), "--json"])
            sys.stdout.flush()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, 1):
        raise RuntimeError(f"{run.fault.name}: doctor ended with {code}")
    return json.loads(out.read_text())


def _launch(run: FaultyRun, models: dict[str, Path]) -> None:
    code = 99
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(run.folder / "stderr.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        run.fault.inside()
        model, *layout = LAYOUTS[run.fault.layout]
        code = shardwise([
            "run", str(models[model]), "--on", *layout, "--seq", "16", "--global-batch", "6", "--device", "cpu",
            "--steps", str(STEPS), "--every", str(EVERY), "--records", str(run.records), "--progress", "none",
            "--checkpoints", str(run.checkpoints), *run.fault.more,
        ])  # fmt: skip
    finally:
        sys.stderr.flush()
        os._exit(code)


def _waited(run: FaultyRun) -> None:
    until = monotonic() + PATIENCE_S
    while monotonic() < until:
        if os.waitpid(run.pid, os.WNOHANG)[0]:
            return
        sleep(0.01)
    os.kill(run.pid, signal.SIGKILL)
    os.waitpid(run.pid, 0)


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@contextmanager
def _plain(folder: Path) -> Iterator[None]:
    folder.mkdir()
    yield


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=False, capture_output=True)


# what goes wrong inside a rank


def _here(rank: int | None) -> bool:
    return rank is None or os.environ.get("RANK") == str(rank)


def slow_compute(rank: int, times: float, onset: int) -> Callable[[], None]:
    """The rank's own part of a step takes so many times as long, as on a GPU with low clocks."""

    def put_in() -> None:
        from shardwise.run.runtime.train.engine import TrainingEngine

        usual, taken = TrainingEngine.accumulate, list[float]()

        def slower(engine: Any, batch: Any) -> Any:
            if _here(rank) and len(taken) >= onset:
                until = perf_counter() + (times - 1) * sorted(taken)[len(taken) // 2]
                while perf_counter() < until:
                    pass
            begun, stood = perf_counter(), sum(engine.world.comm.blocked.values())
            found = usual(engine, batch)
            if len(taken) < max(onset, 5):
                taken.append(perf_counter() - begun - (sum(engine.world.comm.blocked.values()) - stood))
            return found

        TrainingEngine.accumulate = slower  # type: ignore[method-assign]

    return put_in


def slow_data(rank: int | None, seconds: float, onset: int, every: int = 1) -> Callable[[], None]:
    """So late, or half a step where the machine is so busy that steps are longer."""

    def put_in() -> None:
        from shardwise.run.runtime.data.windows import Windows

        usual, asked_at = Windows.batch, list[float]()

        def late(windows: Any, first: int, count: int) -> Any:
            asked_at.append(perf_counter())
            if _here(rank) and len(asked_at) > onset and len(asked_at) % every == 0:
                apart = (asked_at[-1] - asked_at[0]) / len(asked_at)
                sleep(max(seconds, apart * every / 2))
            return usual(windows, first, count)

        Windows.batch = late  # type: ignore[method-assign]

    return put_in


def leak(rank: int | None, size: int) -> Callable[[], None]:
    def put_in() -> None:
        from shardwise.run.runtime.train.engine import TrainingEngine

        usual, kept = TrainingEngine.update, list[bytes]()

        def keeps(engine: Any, rate: float) -> float:
            if _here(rank):
                kept.append(b"x" * (size + len(kept)))
            return usual(engine, rate)

        TrainingEngine.update = keeps  # type: ignore[method-assign]

    return put_in


def hot_expert(expert: int, onset: int) -> Callable[[], None]:
    """The router prefers one expert for every token."""

    def put_in() -> None:
        import torch
        import torch.nn.functional as functional

        from shardwise.run.runtime.net import experts

        count = EXPERTS["num_local_experts"]

        class Preferring:
            calls = 0

            def __getattr__(self, name: str) -> Any:
                return getattr(functional, name)

            def linear(self, x: Any, weight: Any, *bias: Any) -> Any:
                y = functional.linear(x, weight, *bias)
                if y.shape[-1] != count:
                    return y
                self.calls += 1
                wanted = torch.zeros(count)
                wanted[expert] = 50.0 if self.calls > onset else 0.0
                return y + wanted

        experts.F = Preferring()  # type: ignore[assignment]

    return put_in


def not_a_number(step: int) -> Callable[[], None]:
    def put_in() -> None:
        from shardwise.run.runtime.train.engine import TrainingEngine

        usual, made = TrainingEngine.accumulate, [0]

        def spoiled(engine: Any, batch: Any) -> Any:
            made[0] += 1
            found = usual(engine, batch)
            return found * float("nan") if made[0] > step else found

        TrainingEngine.accumulate = spoiled  # type: ignore[method-assign]

    return put_in


def own_network() -> None:
    """This process and its ranks have a loopback of their own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "no network namespace")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


# what goes wrong outside


def shaped(mbit: float) -> Callable[[FaultyRun], None]:
    """A token bucket, larger than a packet of the loopback interface, which would be dropped otherwise. The rate is for
    steps of 50 ms: on a machine so busy that they are longer it is as much lower."""

    def put_in(run: FaultyRun) -> None:
        if run.wait_for(ONSET):
            rate = f"{1e3 * mbit / max(run.pace_s() / 0.05, 1.0):.0f}kbit"
            words = ["nsenter", "-t", str(run.pid), "-n", "tc", "qdisc", "replace", "dev", "lo", "root"]
            shape = ["tbf", "rate", rate, "burst", "128kb", "limit", "8mb"]
            subprocess.run([*words, *shape], check=True, capture_output=True)

    return put_in


def signalled(rank: int, number: int, at: int) -> Callable[[FaultyRun], None]:
    def put_in(run: FaultyRun) -> None:
        if run.wait_for(at):
            os.kill(run.rank_pid(rank), number)

    return put_in


def preempted(rank: int, stopped_s: float, goes_s: float) -> Callable[[FaultyRun], None]:
    """The rank has the processor for a part of the time only."""

    def put_in(run: FaultyRun) -> None:
        if not run.wait_for(ONSET):
            return
        pid = run.rank_pid(rank)
        while not _ended(run.pid) and not _ended(pid):
            try:
                os.kill(pid, signal.SIGSTOP)
                sleep(stopped_s)
                os.kill(pid, signal.SIGCONT)
                sleep(goes_s)
            except ProcessLookupError:
                return

    return put_in


def damaged(how: str, seed: int) -> Callable[[FaultyRun], None]:
    """The newest checkpoint, after the run."""

    def put_in(run: FaultyRun) -> None:
        newest = max(run.checkpoints.glob("step-*"))
        part = sorted(newest.glob("rank-*.bin"))[0]
        if how == "bit":
            content = bytearray(part.read_bytes())
            content[random.Random(seed).randrange(len(content))] ^= 1 << seed % 8
            part.write_bytes(content)
        elif how == "cut":
            os.truncate(part, part.stat().st_size // 2)
        elif how == "gone":
            part.unlink()
        else:
            (newest / "manifest.json").write_text("{}")

    return put_in
