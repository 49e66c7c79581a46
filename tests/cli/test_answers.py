"""Cards of worked problems: every one is answered live and agrees with what its text should say."""

import json

import pytest

from shardwise import catalog
from shardwise.show.cli import main
from shardwise.show.cli._card_verdict import verdict_of
from shardwise.show.cli._cards import AnswerCard, card_of, cards, ours
from shardwise.show.cli.answers import _formula

known: dict[str, object] = {}


@pytest.mark.parametrize("name", catalog.names("answers"))
def test_a_card_is_answered_as_its_text_should(name):
    card = card_of(name)
    number = ours(card, known)
    assert number >= 0
    assert card.agrees(number), f"{number} where {card.expected} is expected"


def test_an_erratum_is_one():
    for card in cards():
        if card.erratum:
            assert abs(card.says - card.right) > card.tolerance * abs(card.right), card.name


def test_a_wrong_answer_is_noticed():
    card = card_of("cuda-cores")
    assert not card.agrees(17_000)
    assert not card_of("tensor-parallel-leaves-the-node").agrees(1)


def test_texts_are_whole_in_both_languages():
    for card in cards():
        for words in (card.question, card.why):
            assert len(words.en) > 5
            assert any("\uac00" <= letter <= "\ud7a3" for letter in words.ko), card.name


def test_the_verb_lists_answers_and_refuses(capsys):
    assert main(["answers", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cards"]) == len(catalog.names("answers"))
    assert main(["answers", "all-gather-in-a-node"]) == 0
    page = capsys.readouterr().out
    assert "65.2 us" in page
    assert "9 us, which is wrong" in page
    assert main(["answers", "cuda-core"]) == 2
    assert "did you mean 'cuda-cores'" in capsys.readouterr().err
    assert main(["answers", "cuda-cores", "--language", "fr"]) == 2
    assert "en or ko" in capsys.readouterr().err


def test_a_card_whose_key_is_gone_says_so():
    card = card_of("cuda-cores")
    lost = AnswerCard(**{field: getattr(card, field) for field in card.__struct_fields__} | {"value": ("cores",)})
    with pytest.raises(ValueError, match="has no 'cores'"):
        ours(lost, known)


def test_an_answer_that_differs_ends_with_1(capsys, monkeypatch):
    monkeypatch.setattr("shardwise.show.cli.answers.ours", lambda *_: 17_000.0)
    assert main(["answers", "cuda-cores"]) == 1
    assert "16,896 was expected" in capsys.readouterr().out


def judged(name, typed):
    card = card_of(name)
    return verdict_of(card, ours(card, known), [_formula(each) for each in card.formula], typed)


def test_every_formula_of_a_card_is_a_right_answer():
    with_formulas = [card for card in cards() if card.formula]
    assert len(with_formulas) >= 100
    for card in with_formulas:
        for each in card.formula:
            assert judged(card.name, f"{each.value!r} {card.unit}".strip()).right, card.name


def test_a_formula_that_differs_says_why():
    for card in cards():
        number = ours(card, known)
        for each in card.formula:
            assert each.differs or abs(each.value - number) <= 0.05 * abs(number), f"{card.name}: {each.value} {number}"


@pytest.mark.parametrize(
    ("name", "typed", "right"),
    [
        ("all-gather-in-a-node", "65.2", True), ("all-gather-in-a-node", "0.0652 ms", True),
        ("all-gather-in-a-node", "6.52e-5 s", True), ("all-gather-in-a-node", "9", False),
        ("all-gather-in-a-node", "65 GB", False), ("pipeline-bubble", "1.158", True),
        ("pipeline-bubble", "3/259", True), ("pipeline-bubble", "0.01158", True), ("pipeline-bubble", "3", False),
        ("backward-over-forward", "2", True), ("backward-over-forward", "3", False),
        ("tensor-parallel-ways", "8", True), ("tensor-parallel-ways", "7.28", True),
        ("tensor-parallel-ways", "9", False), ("gpt-3-utilization", "0.44", True), ("gpt-3-utilization", "44 %", True),
        ("shared-memory", "34.6 MB", True), ("nvlink-h100", "3.6 Tbps", True), ("cuda-cores", "16,896", True),
        ("cuda-cores", "abc", False), ("cuda-cores", "1/0", False), ("cuda-cores", "", False),
        ("energy-of-a-run", "25.2 GWh", True), ("deepseek-batch", "62.9M", True),
        ("tensor-parallel-leaves-the-node", "0", True),
    ],
)  # fmt: skip
def test_answers_are_judged_in_any_unit(name, typed, right):
    assert judged(name, typed).right is right


def test_a_wrong_answer_says_how_far_off_it_is():
    assert "bits" in judged("nvlink-h100", "3600").said
    assert "wrong" in judged("all-gather-in-a-node", "9").said
    assert "number" in judged("cuda-cores", "many").said
    assert "%" in judged("cuda-cores", "18,000").said


def test_an_own_answer_needs_a_card(capsys):
    assert main(["answers", "cuda-cores", "--mine", "16896", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cards"][0]["verdict"]["right"] is True
    assert main(["answers", "--mine", "3"]) == 2
    assert "mine" in capsys.readouterr().err
