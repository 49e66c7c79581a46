"""A question's answer: remembered where it was asked before, otherwise from a process, as the browser gets it."""

from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec

from shardwise.show.page.questions import READS, PageRequest, Refused, refusal_of
from shardwise.show.page.wire import Reply, StreamedProblem, WrongField, WrongRequest
from shardwise.show.page.workers import Answered, Asked, Busy, Pool, Told, TooLong

REMEMBERED = 64 * 2**20
"""bytes of answers"""
WATCH, RUN = "watch", "@run"
"""the verb whose answer changes by itself, and the word that stands for the run it may look at"""
DONE = (0, 1)
MISTAKE = 70


class Trouble(Exception):
    """What is not the user's doing, with the status it is told by."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class AnswersKept:
    """The answers that were asked for last, whole, by question. They are pure functions of it."""

    room: int = REMEMBERED
    _kept: OrderedDict[PageRequest, bytes] = field(default_factory=OrderedDict)
    _size: int = 0

    def get(self, question: PageRequest) -> bytes | None:
        if question in self._kept:
            self._kept.move_to_end(question)
        return self._kept.get(question)

    def keep(self, question: PageRequest, answer: bytes) -> None:
        if len(answer) > self.room // 4 or question in self._kept:
            return
        self._kept[question] = answer
        self._size += len(answer)
        while self._size > self.room:
            _, old = self._kept.popitem(last=False)
            self._size -= len(old)


@dataclass
class Answers:
    pool: Pool
    watched: str = ""
    """the run that `watch` looks at, whoever asks; none: there is none"""
    memory: AnswersKept = field(default_factory=AnswersKept)

    async def of(self, question: PageRequest, told: Told | None = None) -> bytes:
        """`{command, code, answer}` as JSON."""
        fresh = question.verb == WATCH or question.verb in READS  # what changes, and what is too long to remember
        known = None if fresh else self.memory.get(question)
        if known is not None:
            return known
        if question.verb == WATCH and not self.watched:
            raise Refused("run", "", "no run is watched; start the page with `shardwise serve --watch RUN`")
        words = [self.watched if word == RUN else word for word in question.words]
        asked = Asked([*words, "--json"], dict(question.files))
        try:
            got = await self.pool.ask(asked, told)
        except TooLong:
            raise Trouble(
                504, f"{question.verb}: no answer in {self.pool.seconds:g} s; ask for fewer GPUs, or serve --seconds"
            ) from None
        except Busy:
            raise Trouble(503, "too many questions at once; wait a moment") from None
        # the page tells no path of this machine
        command = question.command.replace(RUN, "RUN") if question.verb == WATCH else question.command
        answer = answer_of(question, got, command)
        if not fresh:
            self.memory.keep(question, answer)
        return answer


def answer_of(question: PageRequest, got: Answered, command: str) -> bytes:
    """The verb's JSON is handed on as it stands, so that no number changes on its way."""
    if got.code == MISTAKE:
        raise Trouble(500, got.err.strip()[-500:])
    if got.code not in DONE or not got.out:
        raise refusal_of(got.err, question)
    answer = msgspec.Raw(msgspec.json.format(got.out.encode(), indent=-1))
    return msgspec.json.encode(Reply(command, got.code, answer))


def trouble_data(error: Refused | Trouble) -> tuple[int, bytes]:
    """Status and body of what went wrong."""
    return problem_of(error).status, msgspec.json.encode(WrongRequest(problem_of(error).errors))


def problem_of(error: Refused | Trouble) -> StreamedProblem:
    if isinstance(error, Refused):
        return StreamedProblem(422, [WrongField(error.field, error.value, error.message)])
    return StreamedProblem(error.status, [WrongField("", "", str(error))])
