"""`shardwise answers`: worked problems and review questions of four texts, answered by the command that is shown."""

import shlex
from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.show.cli._cards import AnswerCard, card_of, cards, ours
from shardwise.show.cli._groups import OUTPUT
from shardwise.show.cli._html import draw_amounts
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import Cell, print_facts, print_gap, print_json, print_table
from shardwise.show.cli._progress import answers as counted

DIFFERS = 1
LANGUAGES = ("en", "ko")


def answers(
    name: Annotated[str | None, Parameter(help="A card; none: the list of them. all: every one, computed now.")] = None,
    /,
    *,
    language: Annotated[str, Parameter(group=OUTPUT, help="Of questions and reasons: en or ko.")] = "en",
    json: Json = False,
) -> int:
    """Worked problems and review questions: ours computed now by the command shown, the text's number, its erratum."""
    if language not in LANGUAGES:
        raise ValueError(f"language: {language!r} is unknown; write {' or '.join(LANGUAGES)}")
    if name is None:
        _list(language, json=json)
        return 0
    known: dict[str, Any] = {}
    asked = cards() if name == "all" else [card_of(name)]
    found = counted(asked, "cards", lambda card: (card, ours(card, known)))
    if json:
        print_json({"cards": [_data(card, number) for card, number in found]})
    else:
        for card, number in found:
            _show(card, number, language)
    return 0 if len(found) == len(asked) and all(card.agrees(number) for card, number in found) else DIFFERS


def _list(language: str, *, json: bool) -> None:
    every = cards()
    if json:
        print_json({"cards": [_data(card, None) for card in every]})
        return
    for document in dict.fromkeys(card.document for card in every):
        rows = [[card.name, card.question.of(language)] for card in every if card.document == document]
        print_table(document, ["card", "question"], rows, words=2, breaks=1)
        print_gap()


def _show(card: AnswerCard, number: float, language: str) -> None:
    facts: list[tuple[str, Cell]] = [
        ("from", f"{card.document}, {card.place}"),
        ("command", shlex.join(["shardwise", *shlex.split(card.command)])),
        ("answer", _text(number, card.unit)),
    ]
    if card.says is not None:
        facts.append(("the text", _text(card.says, card.unit) + (", which is wrong" if card.erratum else "")))
    facts.append(("why", card.why.of(language)))
    if not card.agrees(number) and card.expected is not None:
        facts.append(("differs", f"{_text(card.expected, card.unit)} was expected"))
    print_facts(card.question.of(language), facts)
    if card.says is not None:
        told = {"computed here": number, "the text": card.says}
        draw_amounts(card.name, {who: (size, _text(size, card.unit)) for who, size in told.items()})
    print_gap()


def _text(number: float, unit: str) -> str:
    digits = f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
    return f"{digits} {unit}".rstrip()


def _data(card: AnswerCard, number: float | None) -> dict[str, Any]:
    return {
        "name": card.name, "document": card.document, "place": card.place,
        "question": card.question.en, "question_ko": card.question.ko, "command": f"shardwise {card.command}",
        "answer": number, "unit": card.unit, "text_says": card.says, "expected": card.expected,
        "text_is_wrong": card.erratum, "agrees": None if number is None else card.agrees(number),
        "why": card.why.en, "why_ko": card.why.ko,
    }  # fmt: skip
