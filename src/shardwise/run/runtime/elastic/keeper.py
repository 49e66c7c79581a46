"""The launcher of an elastic run: starts replicas, counts their votes, and says who takes part in the next step.

A step is made when every rank of every member holds its gradient. When a rank is lost before that, its replica is ended
and the others try the step again without it: they have kept their own gradients. A replica that was started again takes
part from the next step on, with everything from the memory of the first member.
"""

import math
import os
import selectors
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from time import monotonic
from types import FrameType

from shardwise.measured.record.writer import say
from shardwise.run.runtime.elastic.member import ReplicaMember
from shardwise.run.runtime.elastic.replicas import ReplicaSplit, split_of
from shardwise.run.runtime.elastic.talk import Turn, Vote, hear, socket_pair, tell
from shardwise.run.runtime.loopback import ADDRESS, listener, use_loopback
from shardwise.run.runtime.parent import die_with_parent
from shardwise.run.runtime.ranks import RanksFailed, words_of_end
from shardwise.run.runtime.train.ending import CHECK_FAILED, STOP_SIGNALS, TrainingResult, by_signal
from shardwise.run.runtime.train.lines import StepLine
from shardwise.run.runtime.train.rank import BAD_INPUT, code_of, join_replica
from shardwise.run.runtime.train.task import TrainingOrder
from shardwise.run.runtime.train.told import teller

LOOK_S = 0.2
"""between two looks for ranks that are silent"""


@dataclass
class ReplicaSeat:
    """A rank of a replica, as long as it lives."""

    pid: int
    talk: socket.socket
    there: bool = False
    """has built its part of the model"""
    asked: int = 0
    """the last epoch that it was asked to take part in"""
    computed: bool = False
    vote: Vote | None = None


class ReplicaKeeper:
    def __init__(self, split: ReplicaSplit, max_restarts: int, every: int, told: Callable[[StepLine], None]) -> None:
        self.split, self.restarts, self.every, self.told = split, max_restarts, every, told
        self.settings = split.order.settings
        self.seats: dict[int, dict[int, ReplicaSeat]] = {}
        """by replica and place in it; of replicas that live"""
        self.made: dict[int, int] = {}
        """steps that a living replica's memory has"""
        self.members: tuple[int, ...] = ()
        self.met: set[int] = set()
        """processes that have sockets to each other"""
        self.votes: dict[tuple[int, int], Vote] = {}
        self.step = self.epoch = self.lost = self.back = self.short = 0
        self.checksum_s = 0.0
        self.lines: list[StepLine] = []
        self.remarks: list[str] = []
        self.stopped_by, self.asked_s = 0, monotonic()
        self.selector = selectors.DefaultSelector()

    def run(self) -> TrainingResult:
        try:
            for replica in range(self.split.replicas):
                self._start(replica)
            while not all(seat.there for seats in self.seats.values() for seat in seats.values()):
                self._look()
            self._ask(committed=False)
            while True:
                self._look()
                if any(seat.vote is None for _, _, seat in self._asked()):
                    continue
                committed = self._decided()
                if stopped := self._stopped():
                    return self._result(*stopped)
                if self.step == self.settings.steps:
                    return self._ended()
                self._ask(committed=committed)
        finally:
            for replica in list(self.seats):
                self._end(replica)

    def _asked(self) -> list[tuple[int, int, ReplicaSeat]]:
        """Ranks under way in this epoch: of those that were lost since, none."""
        return [
            (replica, place, seat) for replica, seats in self.seats.items() for place, seat in seats.items()
            if seat.asked == self.epoch
        ]  # fmt: skip

    def _decided(self) -> bool:
        """Whether the step is made; who spoiled it is lost."""
        votes, members, ranks = self.votes, self.members, self.split.ranks
        spoiled = {(one.blamed, place): "its gradient changed after its backward pass"
                   for (_, place), one in votes.items() if one.blamed >= 0}  # fmt: skip
        spoiled |= dict.fromkeys(self._outvoted(), "its weights or moments differ from its peers'")
        for replica, place in {one[0]: one[1] for one in spoiled}.items():
            rank, why = replica * ranks + place, spoiled[replica, place]
            self.remarks.append(f"rank {rank}, replica {replica}: {why}, noticed at step {self.step + 1}")
            self._lose(replica, self.remarks[-1])
        everyone = [(replica, place) for replica in members for place in range(ranks)]
        committed = not spoiled and all(self._ok(*one) for one in everyone)
        self._tell(next((votes[one].line for one in everyone if one in votes and votes[one].line), None))
        current = {replica for replica, _, _ in self._asked()}
        for replica in current:
            if all(self._ok(replica, place) for place in range(ranks)):
                self.made[replica] = self.step + committed
        if committed:
            self.step += 1
            self.short += len(members) < self.split.replicas
            self.checksum_s += max(one.checksum_s for one in votes.values())
        return committed

    def _ok(self, replica: int, place: int) -> bool:
        vote = self.votes.get((replica, place))
        return vote is not None and vote.ok

    def _outvoted(self) -> list[tuple[int, int]]:
        """Ranks whose state differs from that of most others in their place."""
        found = []
        for place in range(self.split.ranks):
            states = {r: v.state for (r, p), v in self.votes.items() if p == place and v.ok and v.state is not None}
            if len(set(states.values())) < 2:
                continue
            value, count = Counter(states.values()).most_common(1)[0]
            if 2 * count <= len(states):
                ranks = ", ".join(str(replica * self.split.ranks + place) for replica in sorted(states))
                raise RanksFailed(
                    f"run: step {self.step + 1}: weights or moments of ranks {ranks} differ, and no majority "
                    "says whose are right; go on from an export, with three replicas or more"
                )
            found += [(replica, place) for replica, state in states.items() if state != value]
        return found

    def _ask(self, *, committed: bool) -> None:
        """Everybody for the next try."""
        took_part = {seat.pid for _, _, seat in self._asked()}
        losses = {r: v.loss for (r, place), v in self.votes.items() if place == 0} if committed else {}
        ready = [r for r, seats in sorted(self.seats.items()) if all(seat.there for seat in seats.values())]
        current = [replica for replica in ready if self.made[replica] == self.step]
        if not current:
            raise RanksFailed(f"run: every replica was lost at step {self.step + 1}; nobody has the weights any more")
        here = {seat.pid for replica in ready for seat in self.seats[replica].values()}
        meets = here != self.met or not committed
        self.back += sum(self.epoch > 0 and self.seats[replica][0].asked == 0 for replica in ready)
        self.members, self.met, self.epoch = tuple(ready), here, self.epoch + 1
        self.votes, self.asked_s = {}, monotonic()
        mesh = self._mesh() if meets else {}
        heals = tuple(replica for replica in ready if replica not in current)
        for replica in ready:
            for place, seat in self.seats[replica].items():
                turn = Turn(
                    step=self.step, epoch=self.epoch, members=self.members, meets=meets, losses=losses, heals=heals,
                    committed=committed and seat.pid in took_part, source=current[0] if heals else -1,
                )  # fmt: skip
                seat.vote, seat.computed, seat.asked = None, False, self.epoch
                with suppress(OSError):
                    tell(seat.talk, turn, mesh.get((replica, place), []))
        for sockets in mesh.values():
            for one in sockets:
                one.close()

    def _mesh(self) -> dict[tuple[int, int], list[socket.socket]]:
        """New sockets between all members, by rank and in the order of the others' numbers."""
        found: dict[tuple[int, int], list[socket.socket]] = {}
        for place in range(self.split.ranks):
            for replica in self.members:
                for other in self.members:
                    if replica < other:
                        one, two = socket.socketpair()
                        found.setdefault((other, place), []).append(two)
                        found.setdefault((replica, place), []).append(one)
        return found

    def _look(self) -> None:
        """Waits for a word or the end of a rank."""
        heard = self.selector.select(LOOK_S)
        for key, _ in heard:
            replica, place = key.data
            seat = self.seats.get(replica, {}).get(place)
            if seat is None or seat.talk is not key.fileobj:
                continue
            try:
                vote, _ = hear(seat.talk, Vote)
            except EOFError:
                self._gone(replica, place)
                continue
            if not vote.epoch:
                seat.there = True
            elif vote.epoch == self.epoch and vote.computed:
                seat.computed = True
            elif vote.epoch == self.epoch:
                seat.vote = self.votes[replica, place] = vote
        # before the first step ranks build their parts, and meet their own replica under its time-out
        if self.epoch and not heard and monotonic() - self.asked_s > self.settings.timeout_s:
            self._silent()

    def _silent(self) -> None:
        late = [
            (replica, place) for replica, place, seat in self._asked() if not (seat.computed or seat.vote)
        ]  # fmt: skip
        if not late:
            raise RanksFailed(f"run: no rank has answered for {self.settings.timeout_s:g} s; write a longer --timeout")
        for replica, place in late:
            if replica in self.seats:
                rank = replica * self.split.ranks + place
                self._lose(replica, f"rank {rank} has been silent for {self.settings.timeout_s:g} s")
        self.asked_s = monotonic()

    def _gone(self, replica: int, place: int) -> None:
        seat = self.seats[replica][place]
        _, status = os.waitpid(seat.pid, 0)
        seat.pid = 0
        code = os.waitstatus_to_exitcode(status)
        if code == BAD_INPUT:
            raise RanksFailed("", BAD_INPUT)
        self._lose(replica, words_of_end(replica * self.split.ranks + place, code))

    def _lose(self, replica: int, words: str) -> None:
        """All of it is ended, and started again as often as allowed."""
        if replica not in self.seats:
            return
        self._end(replica)
        self.lost += 1
        others = ", ".join(map(str, sorted(self.seats)))
        again = self.restarts > 0
        self.restarts -= again
        say(f"{words}; replica {replica} {'begins again' if again else 'is left away'}, replicas {others} go on")
        if again:
            self._start(replica)

    def _end(self, replica: int) -> None:
        seats = self.seats.pop(replica)
        del self.made[replica]
        for seat in seats.values():
            self.selector.unregister(seat.talk)
            if seat.pid:
                os.kill(seat.pid, signal.SIGKILL)
                os.waitpid(seat.pid, 0)
            seat.talk.close()

    def _start(self, replica: int) -> None:
        self.seats[replica], self.made[replica] = {}, 0
        sys.stdout.flush()
        sys.stderr.flush()
        with listener() as meeting:
            for place in range(self.split.ranks):
                ours, theirs = socket_pair()
                parent, pid = os.getpid(), os.fork()
                if not pid:
                    ours.close()
                    self._be_rank(replica, place, theirs, meeting, parent)
                theirs.close()
                self.seats[replica][place] = ReplicaSeat(pid, ours)
                self.selector.register(ours, selectors.EVENT_READ, (replica, place))

    def _be_rank(self, replica: int, place: int, talk: socket.socket, meeting: socket.socket, parent: int) -> None:
        code = CHECK_FAILED
        try:
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            die_with_parent(parent)
            for seats in self.seats.values():
                for seat in seats.values():
                    seat.talk.close()
            os.environ |= {
                "RANK": str(place), "LOCAL_RANK": str(place), "WORLD_SIZE": str(self.split.ranks),
                "MASTER_ADDR": ADDRESS, "MASTER_PORT": str(meeting.getsockname()[1]),
            }  # fmt: skip

            def work() -> None:
                join_replica(self.split.order, meeting.fileno())
                ReplicaMember(self.split, replica, talk, self.every).run()

            code = code_of(work)
        except EOFError:
            pass
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _tell(self, line: StepLine | None) -> None:
        if line is not None and line.step > (self.lines[-1].step if self.lines else 0):
            self.lines.append(line)
            self.told(line)

    def _stopped(self) -> tuple[str, int] | None:
        last = self.lines[-1] if self.lines else None
        for name, value in (("loss", last.loss), ("norm of the gradient", last.grad_norm)) if last else ():
            if not math.isfinite(value):
                return f"the {name} is {value}", CHECK_FAILED
        if self.stopped_by and self.step < self.settings.steps:
            return by_signal(self.stopped_by)
        return None

    def _ended(self) -> TrainingResult:
        """The last step is agreed on: the first member makes it and writes the weights, or the next one does."""
        losses = {r: v.loss for (r, place), v in self.votes.items() if place == 0}
        found = Vote(epoch=self.epoch, why="no replica was left")
        self.restarts = 0
        for replica in sorted({replica for replica, _, _ in self._asked()}):
            if replica not in self.seats:
                continue
            self.votes = {}
            for seat in self.seats[replica].values():
                seat.vote = None
                with suppress(OSError):
                    tell(seat.talk, Turn(step=self.step, epoch=self.epoch, committed=True, losses=losses, ends=True,
                                         exports=True))  # fmt: skip
            while any(seat.vote is None for seat in self.seats.get(replica, {}).values()):
                self._look()
            if (replica, 0) in self.votes and replica in self.seats:
                found = self.votes[replica, 0]
                break
        self._tell(found.line)
        where = self.settings.export
        lacking = (f"the weights in {where!r} ({found.why})",) if found.why and where else ()
        return self._result("", CHECK_FAILED if lacking else 0, found.exported, lacking)

    def _result(self, stopped: str, code: int, exported: str = "", unwritten: tuple[str, ...] = ()) -> TrainingResult:
        text = f"stopped after step {len(self.lines)}: {stopped}; there is no checkpoint" if stopped else ""
        seconds = sum(line.step_s for line in self.lines)
        remarks = [*self.remarks]
        if self.lost:
            remarks.append(
                f"{self.lost} times a replica was lost, {self.back} times one came back; {self.short} of {self.step} "
                f"steps lack micro-batches of {self.split.replicas} replicas"
            )
        if self.every and seconds:
            remarks.append(
                f"checksums took {1e3 * self.checksum_s / max(self.step, 1):.3g} ms a step, "
                f"{self.checksum_s / seconds:.1%} of it"
            )
        return TrainingResult(
            lines=self.lines,
            stopped=text,
            code=code,
            exported=exported,
            unwritten=unwritten,
            remarks=tuple(remarks),
            checksum_s=self.checksum_s,
        )

    def stop(self, number: int, _: FrameType | None) -> None:
        """After the step under way."""
        self.stopped_by = number


@contextmanager
def _obeying(keeper: ReplicaKeeper) -> Iterator[None]:
    before = {number: signal.signal(number, keeper.stop) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_elastic(order: TrainingOrder, max_restarts: int, every: int) -> TrainingResult:
    """`every`: steps between two checksums over weights and moments; 0: none."""
    split = split_of(order)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    use_loopback()
    import_module("torch._dynamo")
    with teller(order.settings, 0) as told:
        keeper = ReplicaKeeper(split, max_restarts, every, told)
        with _obeying(keeper):
            result = keeper.run()
    if text := result.text():
        say(text)
    return result
