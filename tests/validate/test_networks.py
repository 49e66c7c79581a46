"""A run that does not state its network: the median of clusters of its kind, and a band that reaches to the others."""

from math import expm1, log, log1p

import pytest

from shardwise.measured.validate.networks import (
    DEFAULT_GBPS,
    PCIE_GBPS,
    UsualNetwork,
    spread_of,
    usual_network,
    widened,
)
from shardwise.measured.validate.predict import Prediction, predict
from shardwise.measured.validate.table import MeasuredRow
from shardwise.spec.load import gpu_of
from shardwise.step.estimate.band import ErrorBand

RUN = {
    "source": "a paper", "model": "llama-2-7b", "gpu": "A100-80GB-SXM", "gpus": "64", "gpus_per_node": "8",
    "seq": "2048", "global_batch": "64", "micro_batch": "1", "dtype": "bf16", "recompute": "none", "tp": "1",
    "pp": "1", "zero_stage_or_fsdp": "fsdp", "flash_attention": "1", "software": "PyTorch FSDP",
}  # fmt: skip


def _read(**changed: str) -> Prediction:
    return predict([MeasuredRow(row=0, text={**RUN, **changed})])[0]


@pytest.mark.parametrize(("gpu", "middle"), [("a100-80", 100), ("h100", 400), ("gh200", 200), ("b200", 400),
                                             ("b300", 800), ("mi300x", DEFAULT_GBPS)])  # fmt: skip
def test_the_median_of_clusters_of_a_generation(gpu: str, middle: float) -> None:
    found = usual_network(gpu_of(gpu))
    assert found.slow <= found.middle == middle <= found.fast


def test_clusters_of_one_generation_differ() -> None:
    assert usual_network(gpu_of("a100-80")) == UsualNetwork(25, 100, 200)
    assert usual_network(gpu_of("rtx4090")) == UsualNetwork(PCIE_GBPS, PCIE_GBPS, PCIE_GBPS)


def test_the_expectation_is_the_median_and_why_says_so() -> None:
    open_, stated = _read(), _read(internode_gbps_per_gpu="100")
    assert open_.step_s == stated.step_s
    assert "network 100 Gbps per GPU, the median" in open_.why
    assert "network" not in stated.why


def test_the_band_reaches_to_slow_and_fast_networks() -> None:
    """FSDP of a small micro-batch waits for the network: a quarter of it takes longer than the band of the rest."""
    open_, stated = _read(), _read(internode_gbps_per_gpu="100")
    slow, fast = _read(internode_gbps_per_gpu="25"), _read(internode_gbps_per_gpu="200")
    assert open_.band is not None
    assert stated.band is not None
    assert slow.step_s is not None
    assert fast.step_s is not None
    assert open_.step_s is not None
    assert open_.band.high > max(stated.band.high, slow.step_s / open_.step_s - 1)
    assert open_.band.low < min(stated.band.low, fast.step_s / open_.step_s - 1)
    assert "25 to 200 Gbps" in open_.band.evidence


def test_one_node_needs_no_network() -> None:
    alone = _read(gpus="8", global_batch="8")
    assert "network" not in alone.why
    assert alone.band is not None
    assert "network" not in alone.band.evidence


def test_a_part_of_the_band_is_a_cause_of_its_own() -> None:
    """Roots of squares in logarithms: 3 and 4 are 5."""
    band = ErrorBand(expm1(-0.3), expm1(0.3), (), "runs")
    wide = widened(band, UsualNetwork(1, 2, 3), spread_of(1.0 + expm1(0.4), 1.0, 1.0 + expm1(-0.4)))
    assert log1p(wide.high) == pytest.approx(0.5)
    assert log1p(wide.low) == pytest.approx(-0.5)
    assert widened(band, UsualNetwork(1, 2, 3), spread_of(1.0, 1.0, 1.0))[:2] == pytest.approx(band[:2])
    assert log(1.0 + wide.high) > log1p(band.high)
