"""Starts the ranks of a run on this machine and watches them: all begin anew when one dies, as often as allowed.

Ranks on the CPU are forks of this process, which has all modules in memory already; a CUDA context does not survive
that, so ranks with a GPU are started afresh. Nothing is written to the temporary folder: order and answer are open
files without a name.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from time import monotonic, sleep, time
from types import FrameType

import msgspec

from shardwise.interpreter import python_command, python_environment
from shardwise.measured.record.step import RunEvent
from shardwise.measured.record.writer import RecordWriter, say
from shardwise.run.runtime.parent import die_with_parent
from shardwise.run.runtime.seats import LoopbackSeats, RankSeats
from shardwise.run.runtime.train.ending import CHECK_FAILED, STOP_SIGNALS, TrainingResult, by_signal
from shardwise.run.runtime.train.rank import BAD_INPUT, FAILED, INTERRUPTED, launched
from shardwise.run.runtime.train.task import TrainingOrder

POLL_S, GRACE_S = 0.01, 5.0
"""between two looks at the ranks; what they have to end when interrupted"""


class RanksFailed(RuntimeError):
    """`code`: exit code for the whole run."""

    def __init__(self, text: str, code: int = CHECK_FAILED) -> None:
        super().__init__(text)
        self.code = code


class _RankTeam:
    """The processes of one attempt, by rank."""

    def __init__(self) -> None:
        self.alive: dict[int, int] = {}
        self.failure: tuple[int, int] | None = None
        """(rank, code) of the first; of several seen at once, one that was killed before one that only noticed"""
        self.stopped_by = 0
        """the signal that asked this run to end"""

    def look(self) -> None:
        bad = []
        for rank, pid in list(self.alive.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                bad += [(code == FAILED, code > 0, rank, code)] if code else []
                del self.alive[rank]
        if bad and self.failure is None:
            self.failure = min(bad)[2:]

    def send(self, number: int) -> None:
        for pid in self.alive.values():
            os.kill(pid, number)

    def end(self) -> None:
        self.send(signal.SIGKILL)
        while self.alive:
            self.look()
            sleep(POLL_S)


def run_ranks(
    order: TrainingOrder, ranks: int, max_restarts: int, *, fresh: bool = False, seats: RankSeats | None = None
) -> TrainingResult:
    """`fresh`: not forked, as ranks with a GPU; `seats`: not all on the loopback interface."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    seats = seats or LoopbackSeats()
    seats.prepared()
    fresh = fresh or order.settings.device == "cuda"
    if not fresh:
        # every optimizer imports it when it is made, for seconds: once, before the ranks are forked
        import_module("torch._dynamo")
    with tempfile.TemporaryFile() as asked:
        asked.write(msgspec.json.encode(order))
        asked.flush()
        for left in range(max_restarts, -1, -1):
            with tempfile.TemporaryFile() as answer:
                team = _attempt(order, ranks, (asked.fileno(), answer.fileno()), seats, fresh=fresh)
                if team.failure is None:
                    answer.seek(0)
                    return msgspec.msgpack.decode(answer.read(), type=TrainingResult)
            words = words_of_end(*team.failure)
            _recorded(order, team.failure[0], words)
            if not left or team.stopped_by or team.failure[1] in (BAD_INPUT, INTERRUPTED):
                raise _ending(team, words)
            say(f"{words}; all ranks start again, {left - 1} more times if need be")
    raise AssertionError("the last attempt ends or raises")


def _recorded(order: TrainingOrder, rank: int, words: str) -> None:
    if not order.settings.records:
        return
    try:
        RecordWriter(order.settings.records, None).event(
            RunEvent(what="rank ended", at_s=time(), rank=rank, text=words)
        )
    except ValueError as problem:
        say(str(problem))


def _ending(team: _RankTeam, words: str) -> BaseException:
    _, code = team.failure or (0, 0)
    if code == INTERRUPTED:
        return KeyboardInterrupt()
    if code == BAD_INPUT:
        return RanksFailed("", BAD_INPUT)
    return RanksFailed(f"run: {words}", by_signal(team.stopped_by)[1] if team.stopped_by else CHECK_FAILED)


def words_of_end(rank: int, code: int) -> str:
    if code < 0:
        return f"rank {rank} was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"rank {rank} ended with {code}, its own output is above"


def _attempt(order: TrainingOrder, ranks: int, files: tuple[int, int], seats: RankSeats, *, fresh: bool) -> _RankTeam:
    """All ranks from their start to their end."""
    team = _RankTeam()
    with _passed_on(team), seats.together(), seats.listener() as meeting:
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            with _held_back():
                for rank in range(ranks):
                    environment = {
                        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks),
                        "MASTER_ADDR": seats.address,
                        "MASTER_PORT": str(meeting.getsockname()[1]),
                    }  # fmt: skip
                    team.alive[rank] = _started(
                        environment, order, (*files, meeting.fileno()), seats, fresh=fresh
                    )  # fmt: skip
            while team.alive and team.failure is None:
                team.look()
                sleep(POLL_S)
        except KeyboardInterrupt:
            _interrupted(team)
            raise
        finally:
            team.end()
    return team


@contextmanager
def _held_back() -> Iterator[None]:
    """Signals that ask to end wait: here until all ranks are known, in a rank until it can obey."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _started(
    environment: dict[str, str], order: TrainingOrder, files: tuple[int, int, int], seats: RankSeats, *, fresh: bool
) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    code = CHECK_FAILED
    try:
        os.environ.update(environment)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(parent)
        seats.enter(int(environment["RANK"]))
        if fresh:
            for file in files:
                os.set_inheritable(file, True)
            words = python_command("shardwise.run.runtime.train.rank", *map(str, files))
            os.execve(words[0], words, python_environment())
        code = launched(order, *files[1:])
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _interrupted(team: _RankTeam) -> None:
    """A terminal has told the ranks too; a script has not."""
    team.send(signal.SIGINT)
    until = monotonic() + GRACE_S
    while team.alive and monotonic() < until:
        team.look()
        sleep(POLL_S)


@contextmanager
def _passed_on(team: _RankTeam) -> Iterator[None]:
    """Signals that ask the run to end are the ranks' to obey: they save first."""

    def pass_on(number: int, _: FrameType | None) -> None:
        team.stopped_by = number
        team.send(number)

    before = {number: signal.signal(number, pass_on) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
