"""Processes of this machine that work through tasks, each over a pipe of its own: there is nothing they could leave
behind, and one that dies takes only its own task with it."""

import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar

from shardwise.interpreter import SafeChildren

Task = TypeVar("Task")
Answer = TypeVar("Answer")
# spawned, not forked: a fork copies the locks of threads it does not copy
_CONTEXT = get_context("spawn")


@dataclass(frozen=True)
class Died:
    """In place of an answer: the process that worked on the task ended."""

    exit_code: int | None

    @property
    def why(self) -> str:
        code = self.exit_code
        return f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with {code}"


@dataclass(frozen=True)
class _Failed:
    what: str


class WorkerPool(Generic[Task, Answer]):
    """`begin` runs once in every process, on what is given, and gives what `work` is called with before the task."""

    def __init__(
        self, processes: int, work: Callable[[Any, Task], Answer], begin: Callable[..., Any], *given: object
    ) -> None:
        self._start = (work, begin, given)
        self._processes = processes
        self._new: list[tuple[SpawnProcess, Connection]] = []
        """not told yet what to do"""
        self._idle: list[tuple[SpawnProcess, Connection]] = []
        self._busy: dict[Connection, tuple[int, SpawnProcess]] = {}

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[int, Answer | Died]]:
        """(place of the task, its answer) as answers come. A task is taken only when a process is free for it.
        Left early, the processes are stopped."""
        waiting = enumerate(tasks)
        left = True
        try:
            self._new = [_started() for _ in range(self._processes)]
            while left or self._busy:
                while left and len(self._busy) < self._processes:
                    place, task = next(waiting, (-1, None))
                    left = place >= 0
                    if left:
                        self._hand_out(place, task)
                # the last answers may have come together, before it was known that nothing is left
                for connection in wait(list(self._busy)) if self._busy else ():
                    yield self._answer(connection)  # type: ignore[arg-type]
        finally:
            self._stop()

    def _hand_out(self, place: int, task: object) -> None:
        fresh = not self._idle
        process, connection = self._idle.pop() if self._idle else self._new.pop() if self._new else _started()
        self._busy[connection] = (place, process)
        with suppress(OSError):  # it died while idle; the wait that follows says so
            if fresh:
                connection.send(self._start)
            connection.send(task)

    def _answer(self, connection: Connection) -> tuple[int, Answer | Died]:
        place, process = self._busy.pop(connection)
        try:
            answer = connection.recv()
        except (EOFError, OSError):
            process.join()
            return place, Died(process.exitcode)
        self._idle.append((process, connection))
        if isinstance(answer, _Failed):
            raise RuntimeError(f"in a process of its own: {answer.what}")
        return place, answer

    def _stop(self) -> None:
        busy = [(process, connection) for connection, (_, process) in self._busy.items()]
        for process, connection in [*self._new, *self._idle, *busy]:
            connection.close()
            process.terminate()  # what has begun may take long
        for process, _ in [*self._new, *self._idle, *busy]:
            process.join()
        self._new, self._idle, self._busy = [], [], {}


def _started() -> tuple[SpawnProcess, Connection]:
    """What it is to do follows over the pipe: here Ctrl-C would wait until the process has read it."""
    here, there = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_serve, args=(there,), daemon=True)
    with SafeChildren():
        resource_tracker.ensure_running()  # where it has to start it, it lets signals through that were blocked
        with _no_ctrl_c():
            process.start()
    there.close()
    return process, here


@contextmanager
def _no_ctrl_c() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal; a process started in here never sees it: the one that waits for the
    others answers it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection) -> None:
    with suppress(EOFError, OSError):  # whoever asked has gone
        work, begin, given = connection.recv()
        made: list[Any] = []
        while True:
            task = connection.recv()
            try:
                made = made or [begin(*given)]
                answer = work(made[0], task)
            except Exception as problem:
                last = traceback.extract_tb(problem.__traceback__)[-1]
                answer = _Failed(f"{type(problem).__name__}: {problem} ({last.name}, line {last.lineno})")
            connection.send(answer)
