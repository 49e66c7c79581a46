"""Cards of worked problems: every one is answered live and agrees with what its text should say."""

import json

import pytest

from shardwise import catalog
from shardwise.show.cli import main
from shardwise.show.cli._cards import AnswerCard, card_of, cards, ours

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
