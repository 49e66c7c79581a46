"""Sums by hand: pipelines step by step, power, the loss of a classifier, a compressed vector."""

import json
import math

import pytest

from shardwise.answers.pipeline import pipeline_answer
from shardwise.show.cli import main
from textbook_pipeline import active_shares


def asked(capsys, *words):
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words):
    assert main(list(words)) == 2
    return capsys.readouterr().err


def test_four_stages_and_four_micro_batches_from_t1_to_t10(capsys):
    found = asked(capsys, "calc", "pipeline")
    assert [round(100 * slot["share"]) for slot in found["slots"]] == [25, 50, 75, 100, 75, 75, 100, 75, 50, 25]
    assert [slot["step"] for slot in found["slots"]][-1] == "t10"


@pytest.mark.parametrize(("stages", "micro"), [(1, 1), (2, 5), (4, 4), (6, 3), (8, 16)])
def test_the_textbook_order_is_the_one_of_the_schedules_tests(stages, micro):
    shares = [slot.share for slot in pipeline_answer(stages, micro, "textbook").slots]
    assert shares == list(active_shares(stages, micro))


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "micro"), [(1, 3), (4, 4), (4, 8), (3, 2)])
def test_one_task_at_a_time_idles_as_the_formula_says(order, stages, micro):
    """Forward 1, backward 2: (N - 1) x 3 steps are idle beside 3 m of work."""
    found = pipeline_answer(stages, micro, order)
    assert len(found.slots) == 3 * (micro + stages - 1)
    assert 1 - found.mean_share == pytest.approx((stages - 1) / (micro + stages - 1))
    work = [task for slot in found.slots for task in slot.tasks if task]
    assert len(work) == 3 * micro * stages


def test_a_pipeline_that_cannot_be_followed_is_refused(capsys):
    assert "order: 'zb'" in refused(capsys, "calc", "pipeline", "--order", "zb")
    assert "at most 64" in refused(capsys, "calc", "pipeline", "--stages", "64", "--micro", "65")


def test_fifty_thousand_gpus_for_sixty_days(capsys):
    found = asked(capsys, "calc", "power", "--gpus", "50,000", "--watts", "350 W", "--time", "60 d")
    assert (found["power_watts"], found["energy_kwh"], found["usd"]) == (17.5e6, 25.2e6, pytest.approx(2.52e6))
    more = asked(capsys, "calc", "power", "--gpus", "50k", "--watts", "h100", "--time", "60 d", "--pue", "1.2")
    assert more["power_watts"] == 50_000 * 700 * 1.2
    assert "gpus: 0" in refused(capsys, "calc", "power", "--gpus", "0", "--time", "1 d")


def test_the_gradient_is_probability_minus_truth(capsys):
    found = asked(capsys, "calc", "loss", "2,1,0.1", "--label", "1")
    whole = sum(map(math.exp, (2, 1, 0.1)))
    shares = [math.exp(each) / whole for each in (2, 1, 0.1)]
    assert [row["probability"] for row in found["classes"]] == pytest.approx(shares)
    assert [row["gradient"] for row in found["classes"]] == pytest.approx([shares[0], shares[1] - 1, shares[2]])
    assert found["cross_entropy"] == pytest.approx(-math.log(shares[1]))
    assert asked(capsys, "calc", "loss", "1000,0")["cross_entropy"] == 0
    assert "label: 3" in refused(capsys, "calc", "loss", "1,2,3", "--label", "3")
    assert "scores" in refused(capsys, "calc", "loss", "nan,1")


def test_six_tenths_among_five_levels(capsys):
    pytest.importorskip("torch", reason="torch is not installed: nothing can be compressed")
    words = ["0.6,1.0", "--with", "random_quantization", "--set", "levels=5"]
    found = asked(capsys, "calc", "compress", *words)["numbers"][0]
    half, more = found["values"]
    assert (half["value"], half["share"]) == (0.5, pytest.approx(0.6, abs=0.02))
    assert (more["value"], more["share"]) == (0.75, pytest.approx(0.4, abs=0.02))
    assert found["mean"] == pytest.approx(0.6, abs=0.01)
    assert "levels=5" in refused(capsys, "calc", "compress", "1", "--with", "sign", "--set", "levels")


def test_a_word_of_the_glossary_and_a_lesson(capsys):
    (term,) = asked(capsys, "catalog", "terms", "ECN")["terms"]
    assert term["section"] == "The network"
    assert "did you mean 'nosp'" in refused(capsys, "catalog", "terms", "nospp")
    assert len(asked(capsys, "catalog", "lessons")["lessons"]) >= 40
    (lesson,) = asked(capsys, "catalog", "lessons", "pipeline", "--language", "ko")["lessons"]
    assert "파이프라인" in lesson["text"]
    assert "lesson: 'pipelin'" in refused(capsys, "catalog", "lessons", "pipelin")
