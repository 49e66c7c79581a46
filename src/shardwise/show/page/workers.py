"""Processes that wait for questions: started before they are asked, one question at a time each, ended when it takes
too long or nobody waits for it any more.

The command that starts one reads a question as a JSON line and writes lines of `progress` and of what it has `found` so
far, then one of `answer`.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shardwise.interpreter import python_environment

LONGEST_ANSWER = 64 * 2**20
"""bytes of a line"""
MOST_WAITING = 64
WORKERS = 2

ENDED_WORDS = "error: its worker process ended, perhaps out of memory; ask for less"


class Progress(msgspec.Struct):
    what: str
    done: int
    of: int


Told = Callable[[Any], None]
"""Progress, or what is found so far"""


class Answered(msgspec.Struct):
    """A verb's exit code and what it wrote on its two streams."""

    code: int
    out: str
    err: str


ENDED = Answered(70, "", ENDED_WORDS)


class WorkerLine(msgspec.Struct):
    progress: Progress | None = None
    found: Any = None
    """so far, as the verb tells it"""
    answer: Answered | None = None


class Asked(msgspec.Struct):
    words: list[str]
    files: dict[str, str]


class TooLong(Exception):
    """No answer in the time that was given."""


class _Ended(Exception):
    """The process did, in the middle of its work."""


class Busy(Exception):
    """More questions wait than would ever be looked at."""


@dataclass
class Pool:
    command: Sequence[str]
    seconds: float
    size: int = WORKERS
    _idle: list[asyncio.subprocess.Process] = field(default_factory=list)
    _all: set[asyncio.subprocess.Process] = field(default_factory=set)
    _turn: asyncio.Semaphore | None = None
    _waiting: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self) -> None:
        self._turn = asyncio.Semaphore(self.size)
        for _ in range(self.size):
            self._idle.append(await self._started())

    async def close(self) -> None:
        """Nothing is started any more, whoever still waits."""
        self._turn = None
        await asyncio.gather(*self._tasks)
        for process in list(self._all):
            await self._ended(process)

    async def ask(self, asked: Asked, told: Told | None = None) -> Answered:
        """Cancelled, or out of time, the process that works on it is ended and another takes its place."""
        if self._waiting >= MOST_WAITING or self._turn is None:
            raise Busy
        self._waiting += 1
        try:
            async with self._turn:
                process = self._idle.pop() if self._idle else await self._started()
                try:
                    answer = await asyncio.wait_for(_exchange(process, asked, told), self.seconds)
                except BaseException as error:
                    self._replace(process)
                    if isinstance(error, TimeoutError):
                        raise TooLong from None
                    if isinstance(error, _Ended | ConnectionError):
                        return ENDED
                    raise
                self._idle.append(process)
                return answer
        finally:
            self._waiting -= 1

    def _replace(self, process: asyncio.subprocess.Process) -> None:
        """In a task of its own: the one that asked may just be cancelled."""

        async def again() -> None:
            await self._ended(process)
            if self._turn is not None:
                self._idle.append(await self._started())

        task = asyncio.get_running_loop().create_task(again())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _started(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *self.command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, start_new_session=True, limit=LONGEST_ANSWER, env=python_environment(),
        )  # fmt: skip
        self._all.add(process)
        return process

    async def _ended(self, process: asyncio.subprocess.Process) -> None:
        """With everything it started."""
        self._all.discard(process)
        if process in self._idle:
            self._idle.remove(process)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _exchange(process: asyncio.subprocess.Process, asked: Asked, told: Told | None) -> Answered:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.json.encode(asked) + b"\n")
    await process.stdin.drain()
    while True:
        try:
            raw = await process.stdout.readline()
        except ValueError:
            return Answered(2, "", "error: the answer is too long for a page; ask for less")
        if not raw:
            raise _Ended
        line = msgspec.json.decode(raw, type=WorkerLine)
        if line.answer is not None:
            return line.answer
        if told is not None and (news := line.progress or line.found) is not None:
            told(news)
