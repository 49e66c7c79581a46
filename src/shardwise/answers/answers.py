"""`answers`: worked problems of widely read texts, each answered now by the command that is shown."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from msgspec import UNSET, Struct

from shardwise.answers.answer import Answer, Bars, Cell, FactList, Part, Table


class CardFormula(Struct, frozen=True, kw_only=True):
    """A textbook's way to the answer of a card, and why it differs from the one computed here."""

    text: str
    text_ko: str
    value: float
    differs: str = ""
    differs_ko: str = ""


class CardVerdict(Struct, frozen=True, kw_only=True):
    """Of a reader's own answer."""

    right: bool
    by: str | None
    """ours, formula, expected or text: the answer it agrees with"""
    off: float | None
    """relative difference from the nearest right answer"""
    said: str
    said_ko: str


class CardRow(Struct, frozen=True, kw_only=True):
    name: str
    document: str
    place: str
    question: str
    question_ko: str
    command: str
    answer: float | None
    """none in a list"""
    unit: str
    text_says: float | None
    expected: float | None
    text_is_wrong: bool
    agrees: bool | None
    why: str
    why_ko: str
    case: str
    """what the question takes for granted"""
    case_ko: str
    formulas: Sequence[CardFormula]
    verdict: CardVerdict | None

    def words(self, language: str) -> tuple[str, str]:
        """Question and reason."""
        return (self.question_ko, self.why_ko) if language == "ko" else (self.question, self.why)


class CardsAnswer(Answer, frozen=True, kw_only=True):
    only_shown: ClassVar[tuple[str, ...]] = ("language", "asked")

    cards: Sequence[CardRow]
    language: Any = UNSET
    asked: Any = UNSET
    """how many cards were asked for"""

    @property
    def exit_code(self) -> int:
        """1: a card was not answered, or its answer differs from the one expected."""
        return 0 if len(self.cards) == self.asked and all(card.agrees is not False for card in self.cards) else 1

    def parts(self) -> Iterator[Part]:
        if any(card.answer is None for card in self.cards):
            for document in dict.fromkeys(card.document for card in self.cards):
                rows = [[c.name, c.words(self.language)[0]] for c in self.cards if c.document == document]
                yield Table(document, ["card", "question"], rows, words=2, breaks=1)
        else:
            for card in self.cards:
                yield from _card(card, self.language)


ANSWERS = (CardsAnswer,)


def _card(card: CardRow, language: str) -> Iterator[Part]:
    question, why = card.words(language)
    number = card.answer or 0.0
    facts: list[tuple[str, Cell]] = [
        ("from", f"{card.document}, {card.place}"), ("case", (card.case_ko if language == "ko" else card.case) or None),
        ("command", shlex.join(shlex.split(card.command))), ("answer", _text(number, card.unit)),
    ]  # fmt: skip
    for each in card.formulas:
        text, differs = (each.text_ko, each.differs_ko) if language == "ko" else (each.text, each.differs)
        facts.append(("by hand", f"{text} = {_text(each.value, card.unit)}{differs and f'; {differs}'}"))
    if card.text_says is not None:
        rounded = ", rounded" if card.expected not in (None, card.text_says) else ""
        wrong = ", which is wrong" if card.text_is_wrong else rounded
        facts.append(("the text", _text(card.text_says, card.unit) + wrong))
    if card.verdict is not None:
        facts.append(("yours", card.verdict.said_ko if language == "ko" else card.verdict.said))
    facts.append(("why", why))
    if card.agrees is False and card.expected is not None:
        facts.append(("differs", f"{_text(card.expected, card.unit)} was expected"))
    yield FactList(question, facts)
    if card.text_says is not None:
        both = {"computed here": number, "the text": card.text_says}
        yield Bars(card.name, {who: (size, _text(size, card.unit)) for who, size in both.items()})


def _text(number: float, unit: str) -> str:
    digits = f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
    return f"{digits} {unit}".rstrip()
