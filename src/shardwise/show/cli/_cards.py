"""Worked problems and review questions of four widely read texts as cards: a question, the command that answers it,
where the answer stands in its JSON, what the text says."""

import contextlib
import io
import json
import shlex
from typing import Any

from msgspec import Struct

from shardwise import catalog
from shardwise.fields import converted

LENGTH = "length"
"""as the last key: how many entries a list has"""
TOLERANCE = 0.005
"""of what a text prints to two or three digits"""


class Words(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    en: str
    ko: str

    def of(self, language: str) -> str:
        return self.ko if language == "ko" else self.en


class Formula(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A textbook's way to the answer: a right answer beside the one computed here."""

    text: Words
    value: float
    differs: Words | None = None
    """why it differs from the one computed here, where it does"""


class AnswerCard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    document: str
    place: str
    command: str
    question: Words
    why: Words
    value: tuple[str | float, ...]
    """keys of the command's JSON ('levels.0.gpus') and numbers, multiplied"""
    over: tuple[str | float, ...] = ()
    """the same, divided by"""
    unit: str = ""
    says: float | None = None
    """what the text prints; None: it has words only"""
    right: float | None = None
    """what it should print, where that differs or it prints nothing; None: nothing to hold the answer against"""
    tolerance: float = TOLERANCE
    case: Words | None = None
    """what the question takes for granted: model, cluster, policy, batch"""
    formula: tuple[Formula, ...] = ()

    @property
    def expected(self) -> float | None:
        return self.says if self.right is None else self.right

    @property
    def erratum(self) -> bool:
        """The text is wrong by more than the last digit it prints."""
        if self.says is None or self.right is None:
            return False
        digits = len(f"{self.says:.12g}".partition(".")[2])
        return abs(self.says - self.right) > 0.501 * 10.0**-digits

    def agrees(self, ours: float) -> bool:
        if self.expected is None:
            return True
        return abs(ours - self.expected) <= self.tolerance * abs(self.expected)


def card_of(name: str) -> AnswerCard:
    stem = catalog.resolve("answers", name)
    return converted(
        catalog.entry("answers", stem) | {"name": stem}, AnswerCard, f"card {stem}", "the fields of a card"
    )


def cards() -> list[AnswerCard]:
    """All, by document and in the order of its places."""
    return sorted(map(card_of, catalog.names("answers")), key=lambda card: (card.document, card.place, card.name))


def ours(card: AnswerCard, answers: dict[str, object]) -> float:
    """Computed now. `answers`: of commands that were run before, and of this one afterwards."""
    if card.command not in answers:
        answers[card.command] = _answer(card.command)
    number = 1.0
    for factor in card.value:
        number *= _at(answers[card.command], factor, card)
    for factor in card.over:
        number /= _at(answers[card.command], factor, card)
    return number


def _answer(command: str) -> Any:
    from shardwise.show.cli import main  # which imports every verb's page

    said, complaint = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaint):
        main([*shlex.split(command), "--json"])
    if not said.getvalue():
        raise ValueError(f"command: 'shardwise {command}' gave no answer: {complaint.getvalue().strip()[:200]}")
    return json.loads(said.getvalue())


def _at(answer: Any, factor: str | float, card: AnswerCard) -> float:
    if not isinstance(factor, str):
        return float(factor)
    for key in factor.split("."):
        try:
            if key == LENGTH and isinstance(answer, list):
                return float(len(answer))
            answer = answer[int(key)] if isinstance(answer, list) else answer[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise ValueError(f"card {card.name}: 'shardwise {card.command} --json' has no {factor!r}") from None
    return float(answer)
