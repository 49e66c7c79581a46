"""The band of a step time: one rule for every verb, wider for each thing that nothing measured supports."""

import pytest

from shardwise.cost.curve import curve_of
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of, gpu_of
from shardwise.spec.software import match_of, named, stack_for, stack_of
from shardwise.step.estimate.band import MISSING, band_for, band_of, end_of, tuned_band
from shardwise.work.case import case_of


def band(software, gpu="h100", gpus=64, experts=False, source="DGXC-v25.04"):
    return band_for(match_of(software), curve_of(gpu_of(gpu)), gpus=gpus, experts=experts, source=source)


SUPPORTED = band("NeMo 24.07")


def test_a_fitted_program_lacks_nothing_and_says_how_many_runs():
    assert SUPPORTED.missing == ()
    assert SUPPORTED.low < 0 < SUPPORTED.high
    assert SUPPORTED.evidence == "constants of the program fitted on 280 runs"
    assert f"{SUPPORTED.low:+.0%} .. {SUPPORTED.high:+.0%}: " in str(SUPPORTED)


def test_runs_of_others_say_less_of_ones_own():
    """Fitted programs that somebody else ran took longer than predicted more often than not."""
    own = band("NeMo 24.07", source="")
    assert own.missing == ("site",)
    assert own.evidence == "constants of the program fitted on 280 runs of others"
    assert own.low <= SUPPORTED.low
    assert own.high > SUPPORTED.high
    assert band("NeMo 24.07", source="DGXCloud").missing == ("site",)
    job, cluster, model = Job(seq=4096, global_batch=64), cluster_of("8xh100"), model_of("llama-3-8b")
    case = case_of(model, cluster, job, stack_of("megatron-core"))
    assert band_of(case).missing == ("site",)
    assert band_of(case, "Megatron-Bridge-perf").missing == ()
    between = tuned_band(case)
    assert (between.low, between.high, between.missing) == (SUPPORTED.low, SUPPORTED.high, ())


@pytest.mark.parametrize(
    ("lacking", "said", "given"),
    [
        ({"alike"}, "no run of GPT-NeoX was fitted", {"software": "GPT-NeoX", "gpu": "a100-80"}),
        ({"alike", "unknown"}, "software 'Mine 1.0' is not known; taken as generic", {"software": "Mine 1.0"}),
        ({"chip"}, "no kernel rates of rtx4090, those of l40s taken", {"software": "NeMo 24.07", "gpu": "rtx4090"}),
        ({"scale"}, "16,384 GPUs, megatron-core was fitted on up to", {"software": "NeMo 24.07", "gpus": 16384}),
        (
            {"experts"},
            "an expert model, nanotron was fitted on none",
            {"software": "nanotron", "experts": True, "source": "nanotron-ultrascale"},
        ),
        ({"alike", "unseen"}, "no run of MaxText was fitted or ever compared", {"software": "MaxText", "gpus": 8}),
    ],
)
def test_what_nothing_supports_widens_the_band_and_is_said(lacking, said, given):
    found = band(**given)
    assert set(found.missing) == lacking <= set(MISSING)
    assert said in found.evidence
    assert (1 + found.high) / (1 + found.low) > (1 + SUPPORTED.high) / (1 + SUPPORTED.low)
    assert found.low <= SUPPORTED.low
    assert found.high >= SUPPORTED.high


def test_a_gpu_without_rates_is_supported_by_runs_of_the_program_on_it():
    assert curve_of(gpu_of("h100-96")).measured != "h100-96"
    assert band("torchtitan", gpu="h100-96", source="torchtitan").missing == ()
    assert band("nanotron", gpu="h100-96", source="nanotron-ultrascale").missing == ("chip",)


def test_a_chip_whose_links_alone_differ_has_the_rates_of_the_measured_one():
    assert band("NeMo 24.07", gpu="h800").missing == band("NeMo 24.07", gpu="h100").missing == ()
    assert band("NeMo 24.07", gpu="h100-pcie").missing == ("chip",)


def test_a_stack_by_its_own_name_and_the_text_it_was_taken_for():
    job, cluster, model = Job(seq=4096, global_batch=64), cluster_of("8xh100"), model_of("llama-3-8b")
    by_name = case_of(model, cluster, job, stack_of("nemo@24"))
    unknown = case_of(model, cluster, job, stack_for("Mine 1.0"))
    assert band_of(by_name, "NeMo-24.07-perf").missing == ()
    assert band_of(case_of(model, cluster, job, stack_of("megatron-core@lm"))).missing == ("alike",)
    assert band_of(unknown).missing == ("unknown", "alike")
    assert "software 'Mine 1.0' is not known; taken as generic" in unknown.notes
    assert named(unknown.stack).text == "Mine 1.0"
    assert by_name.notes == ()


def test_a_stack_without_any_fitted_runs_lacks_those_of_its_name_only():
    found = band("Megatron-LM 2022", gpu="a100-80", gpus=4096)
    assert found.missing == ("alike", "unseen")
    assert found.evidence.startswith("no run of Megatron-LM 2022 was fitted or ever compared")


def test_experts_on_one_gpu_say_little_of_experts_on_eight():
    alone, eight = (band("torch FSDP2", gpus=gpus, experts=True) for gpus in (1, 8))
    assert "experts" not in alone.missing
    assert "experts" in eight.missing
    assert "an expert model, torch-eager was fitted on none over several GPUs" in eight.evidence


def test_parts_of_an_end_go_together_as_the_root_of_their_squares():
    parts = {"base": -0.3, "alike": -0.4, "chip": -1.2, "scale": 0.0}
    assert end_of(parts, ()) == -0.3
    assert end_of(parts, ("scale",)) == -0.3
    assert end_of(parts, ("alike",)) == pytest.approx(-0.5)
    assert end_of(parts, ("alike", "chip")) == pytest.approx(-1.3)


def test_the_ends_lie_around_the_step():
    low, high = SUPPORTED.around(10.0)
    assert (low, high) == (pytest.approx(10 * (1 + SUPPORTED.low)), pytest.approx(10 * (1 + SUPPORTED.high)))
