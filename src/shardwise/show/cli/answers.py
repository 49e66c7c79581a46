"""`shardwise answers`: worked problems and review questions of four texts, answered by the command that is shown."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.answers import CardFormula, CardRow, CardsAnswer
from shardwise.show.cli._card_verdict import verdict_of
from shardwise.show.cli._cards import AnswerCard, Formula, card_of, cards, ours
from shardwise.show.cli._groups import OUTPUT
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import answers as counted

LANGUAGES = ("en", "ko")


def answers(
    name: Annotated[str | None, Parameter(help="A card; none: the list of them. all: every one, computed now.")] = None,
    /,
    *,
    mine: Annotated[str | None, Parameter(help="Your own answer to one card, in any unit: '65 us', '3/259'.")] = None,
    language: Annotated[str, Parameter(group=OUTPUT, help="Of questions and reasons: en or ko.")] = "en",
    json: Json = False,
) -> int:
    """Worked problems and review questions: ours computed now by the command shown, the text's number, its erratum."""
    if language not in LANGUAGES:
        raise ValueError(f"language: {language!r} is unknown; write {' or '.join(LANGUAGES)}")
    known: dict[str, object] = {}
    if mine is not None and name in (None, "all"):
        raise ValueError("mine: an answer is to one card; write the card's name before --mine")
    if name is None:
        rows = [_row(card, None) for card in cards()]
        return answered(CardsAnswer(cards=rows, language=language, asked=len(rows)), json)
    asked = cards() if name == "all" else [card_of(name)]
    found = counted(asked, "cards", lambda card: _row(card, ours(card, known), mine))
    return answered(CardsAnswer(cards=found, language=language, asked=len(asked)), json)


def _row(card: AnswerCard, number: float | None, mine: str | None = None) -> CardRow:
    formulas = [_formula(each) for each in card.formula]
    return CardRow(
        name=card.name, document=card.document, place=card.place, question=card.question.en,
        question_ko=card.question.ko, command=f"shardwise {card.command}", answer=number, unit=card.unit,
        text_says=card.says, expected=card.expected, text_is_wrong=card.erratum,
        agrees=None if number is None else card.agrees(number), why=card.why.en, why_ko=card.why.ko,
        case=card.case.en if card.case else "", case_ko=card.case.ko if card.case else "", formulas=formulas,
        verdict=None if number is None or mine is None else verdict_of(card, number, formulas, mine),
    )  # fmt: skip


def _formula(each: Formula) -> CardFormula:
    differs = each.differs
    return CardFormula(
        text=each.text.en, text_ko=each.text.ko, value=each.value, differs=differs.en if differs else "",
        differs_ko=differs.ko if differs else "",
    )  # fmt: skip
