"""One node: what its commands print and its files hold, asked for live and kept, or read again from what was kept."""

import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from msgspec import Struct

from shardwise.run.preflight import nvml
from shardwise.run.preflight.measurements import Measurements
from shardwise.run.preflight.packages import versions_here
from shardwise.screen import names_secret, without_secrets

MOST_BYTES = 4 * 2**20
"""of what a command prints or a file holds"""
MOST_KEPT = 2**18
"""characters of it that are kept"""
MOST_NAMES = 4096
COMMAND_S = 20.0
TIMED_OUT = 124
ENVIRONMENT = re.compile(r"^(NCCL|CUDA|TORCH|PYTORCH|UCX|GLOO|OMPI_MCA|FI|NVIDIA|RCCL|HSA)_|^OMP_NUM_THREADS$")


class Printed(Struct, frozen=True, kw_only=True):
    """What a command said."""

    code: int
    text: str
    lines: int = 0
    """printed in all, where only some are kept"""


Runner = Callable[[str, float], Printed | None]
"""(command, seconds) -> what it printed; None: there is no such command"""


class Node(Protocol):
    @property
    def host(self) -> str: ...
    @property
    def environment(self) -> Mapping[str, str]: ...
    @property
    def packages(self) -> Mapping[str, str]: ...
    @property
    def measured(self) -> Measurements: ...
    def run(self, command: str, keep: str = "", seconds: float = COMMAND_S) -> Printed | None:
        """What a command prints; `keep`: only lines that this is found in. None: it is not installed."""

    def read(self, path: str) -> str | None:
        """A file's text without the blanks around it; None: it is not there, or is not for this user."""

    def names(self, path: str) -> list[str]:
        """What lies in a folder, in order; empty where it is none."""


@dataclass
class LiveNode:
    """This machine. Everything it is asked is kept, so that it can be asked again elsewhere."""

    root: Path = Path("/")
    runner: Runner | None = None
    host: str = field(default_factory=socket.gethostname)
    environment: Mapping[str, str] = field(default_factory=lambda: relevant(os.environ))
    packages: Mapping[str, str] = field(default_factory=versions_here)
    measured: Measurements = field(default_factory=Measurements)
    commands: dict[str, Printed | None] = field(default_factory=dict)
    files: dict[str, str | None] = field(default_factory=dict)
    folders: dict[str, list[str]] = field(default_factory=dict)

    def run(self, command: str, keep: str = "", seconds: float = COMMAND_S) -> Printed | None:
        if command not in self.commands:
            found = (self.runner or run_here)(command, seconds)
            self.commands[command] = None if found is None else kept_of(found, keep)
        return self.commands[command]

    def read(self, path: str) -> str | None:
        if path not in self.files:
            self.files[path] = self._content(path)
        return self.files[path]

    def names(self, path: str) -> list[str]:
        if path not in self.folders:
            try:
                found = sorted(each.name for each in self._at(path).iterdir())
            except OSError:
                found = []
            self.folders[path] = sorted(found[:MOST_NAMES], key=natural)
        return self.folders[path]

    def fresh(self) -> "LiveNode":
        """The same machine, asked anew: for counters that move."""
        return LiveNode(self.root, self.runner, self.host, self.environment, self.packages)

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _content(self, path: str) -> str | None:
        try:
            with self._at(path).open("rb") as file:
                raw = file.read(MOST_KEPT)
        except (OSError, ValueError):
            return None
        return raw.decode("utf-8", errors="replace").strip()


def relevant(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that change how a job talks and computes; none that may hold a secret."""
    return {
        name: without_secrets(value[:1000]) for name, value in sorted(environment.items())
        if ENVIRONMENT.match(name) and not names_secret(name, value)
    }  # fmt: skip


def natural(name: str) -> list[tuple[int, str]]:
    """mlx5_2 before mlx5_10."""
    return [(int(piece) if piece.isdecimal() else -1, piece) for piece in re.split(r"(\d{1,9})", name)]


def kept_of(found: Printed, keep: str) -> Printed:
    """The lines that are asked for, and the last one: it shows what kind of text it was."""
    lines = found.text.splitlines()
    text = "\n".join(line for line in lines if line is lines[-1] or re.search(keep, line)) if keep else found.text
    return Printed(code=found.code, text=text[:MOST_KEPT], lines=len(lines))


def run_here(command: str, seconds: float) -> Printed | None:
    """Runs a command of this machine in English, without input, for a limited time; its children end with it."""
    words = shlex.split(command)
    variables = {**os.environ, "LC_ALL": "C", "LANG": "C", "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    with tempfile.TemporaryFile() as out:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=variables,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError):
            return nvml.answer(words)
        try:
            code = _awaited(process, out, seconds)
        finally:
            _end(process)
        out.seek(0)
        raw = out.read(MOST_BYTES)
    return Printed(code=code, text=raw.decode("utf-8", errors="replace"))


def _awaited(process: "subprocess.Popen[bytes]", out: BinaryIO, seconds: float) -> int:
    """Its exit code, or that of `timeout` where it took too long or printed too much."""
    end, pause = time.monotonic() + seconds, 0.002
    while process.poll() is None:
        if time.monotonic() > end or os.fstat(out.fileno()).st_size > MOST_BYTES:
            return TIMED_OUT
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    return process.returncode


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # one that waits for a dead mount cannot be ended
            process.wait(timeout=1.0)
