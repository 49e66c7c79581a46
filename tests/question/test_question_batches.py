"""Batches: in a unit that is said, near one that all GPUs share evenly."""

import pytest

from shardwise import open_question_of, plan_of, question_of


def batch(on, **options):
    return open_question_of("llama-3-8b", on=on, **options).job.global_batch


@pytest.mark.parametrize("text", ["4M", "1k", "2 M"])
def test_a_number_of_what(text):
    with pytest.raises(ValueError, match=r"^global-batch: .* tokens"):
        batch("8xh100", global_batch=text)


@pytest.mark.parametrize(
    ("text", "found"), [("4M tokens", 512), ("4M-tokens", 512), ("512", 512), ("1k sequences", 1000)]
)
def test_what_is_said_is_taken(text, found):
    assert batch("dgx-h100:64", global_batch=text, seq=8192) == found


@pytest.mark.parametrize(("gpus", "found"), [(64, 512), (104, 520), (96, 528), (1024, 512), (80, 520)])
def test_an_assumed_batch_divides(gpus, found):
    assert batch(f"dgx-h100:{gpus}") == found
    assert found % (gpus // (gpus & -gpus)) == 0


def test_a_stated_batch_that_does_not_divide_is_advised_against():
    plan = plan_of("llama-3-8b", on="dgx-h100:104", global_batch=512)
    (advice,) = [each for each in plan.assumed if each.name == "even batch"]
    assert advice.flag == "--global-batch 520"
    better = plan_of("llama-3-8b", on="dgx-h100:104", global_batch=520).recommended
    per_token = (better.step_s / 520) / (plan.recommended.step_s / 512) - 1
    assert advice.change == pytest.approx(per_token)
    assert not [
        each for each in plan_of("llama-3-8b", on="dgx-h100:64", global_batch=512).assumed if "even" in each.name
    ]


def test_estimate_and_plan_assume_the_same_batch():
    assert question_of("llama-3-8b", on="dgx-h100:104", dp=104).job.global_batch == batch("dgx-h100:104")
