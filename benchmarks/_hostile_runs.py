"""One command line in a process of its own, with bounds on its time and memory and a measure of both."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CPU_S, WALL_S = 60, 240
MEMORY_BYTES = 6 * 2**30
"""so that what grows without end does not take the machine along"""
BAD_INPUT, SHARDWISE_FAILED = 2, 70


@dataclass(frozen=True)
class RunOutcome:
    code: int
    cpu_s: float
    rss_bytes: int
    out: bytes
    err: bytes

    @property
    def hung(self) -> bool:
        return self.code in (-signal.SIGXCPU, -signal.SIGKILL)

    @property
    def failed(self) -> bool:
        """A traceback, or an end that no verb means."""
        return not self.hung and (self.code not in (0, 1, BAD_INPUT) or b"Traceback" in self.err)

    @property
    def said(self) -> str:
        return " ".join(self.err.decode(errors="replace").split())[-300:]


def environment(temporary: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    own = {"PYTHONPATH": str(ROOT / "src"), "HOME": str(temporary), "TMPDIR": str(temporary), "NO_COLOR": "1",
           "SHARDWISE_NO_LAB": "1", "OMP_NUM_THREADS": "1"}  # fmt: skip
    return kept | own


def started(words: list[str], folder: Path, temporary: Path, **streams: int) -> "subprocess.Popen[bytes]":
    """As the console script runs: `-P` leaves the folder it stands in off the path of modules, as a script does."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "shardwise", *words], cwd=folder, env=environment(temporary), preexec_fn=_bounded,
        start_new_session=True, **{"stdin": subprocess.DEVNULL} | streams,
    )  # fmt: skip


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(words: list[str], folder: Path, temporary: Path) -> RunOutcome:
    out, err = temporary / "stdout", temporary / "stderr"
    with out.open("wb") as told, err.open("wb") as said:
        process = started(words, folder, temporary, stdout=told.fileno(), stderr=said.fileno())
    code, used = ended(process)
    return RunOutcome(code, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, out.read_bytes(), err.read_bytes())


def ended(process: "subprocess.Popen[bytes]", wall_s: float = WALL_S) -> tuple[int, resource.struct_rusage]:
    """Its exit code and what it used, it and those it waited for; killed with all of its own after so long."""
    last = time.monotonic() + wall_s
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            _kill_group(process.pid)
            return process.returncode, used
        if time.monotonic() > last:
            _kill_group(process.pid)
            last = float("inf")
        time.sleep(0.01)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def left_by_running(*folders: Path, mark: str) -> Iterator[Path]:
    """What only code that was in a file could have made."""
    for folder in folders:
        yield from (*folder.glob(f"{mark}*"), *folder.glob(f"*/{mark}*"))
