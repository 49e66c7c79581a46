"""Every file of catalog/gpus and catalog/prices meets the contract of its kind."""

import csv
import re
import sys
from pathlib import Path

import pytest

from shardwise import catalog
from shardwise.spec.hardware import electricity
from shardwise.spec.load import gpu_of, price_of
from shardwise.spec.reported import catalog_gpu
from shardwise.spec.usual import UNKNOWN, assumed_fabric, usual_fabric

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from truth import truth

GPUS = catalog.names("gpus")
REPORTED = (
    "NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 96GB HBM3", "NVIDIA A100-SXM4-80GB",
    "NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA B100", "NVIDIA B200", "NVIDIA GB200",
    "NVIDIA B300 SXM6 AC", "NVIDIA GB300", "NVIDIA GH200 480GB",
    "NVIDIA H20", "NVIDIA H800", "Tesla V100-SXM2-32GB", "AMD Instinct MI300X",
    "AMD Instinct MI355X", "NVIDIA A800-SXM4-80GB", "NVIDIA H100 NVL", "NVIDIA L40S", "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce RTX 4090",
)  # fmt: skip
PRICED = [name for name in catalog.names("prices") if name != "electricity"]


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_loads_and_states_its_source(name):
    gpu = gpu_of(name)
    assert gpu.name == name
    assert len(gpu.source) > 10
    assert re.fullmatch(r"20\d\d-\d\d", gpu.date)


@pytest.mark.parametrize("name", GPUS)
def test_rates_are_dense_and_ordered(name):
    peak = gpu_of(name).peak_flops
    order = [d for d in ("fp32", "tf32", "bf16", "fp8", "fp4") if d in peak]
    assert [peak[d] for d in order] == sorted(peak[d] for d in order)
    if {"bf16", "fp8"} <= set(peak):
        assert 1.9 < peak["fp8"] / peak["bf16"] < 2.1
    if {"bf16", "fp16"} <= set(peak):
        assert peak["bf16"] == peak["fp16"]


@pytest.mark.parametrize("name", GPUS)
def test_figures_are_of_the_right_size(name):
    gpu = gpu_of(name)
    assert 16 * 2**30 <= gpu.memory_bytes < 512 * 2**30
    assert 0.5e12 < gpu.memory_bandwidth < 20e12
    assert 0.9e9 < gpu.base_clock_hz <= gpu.boost_clock_hz < 3e9
    assert 150 < gpu.power_watts < 2000
    assert 30 < gpu.peak("bf16") / gpu.memory_bandwidth < 600
    # cores of CDNA issue two fp32 instructions at once
    issued = 2 if gpu.architecture.startswith("CDNA") else 1
    assert gpu.peak_flops["fp32"] == pytest.approx(2 * issued * gpu.fp32_cores * gpu.boost_clock_hz, rel=0.15)


@pytest.mark.parametrize("name", [n for n in GPUS if catalog.entry("gpus", n).get("default_fabric") != UNKNOWN])
def test_the_usual_fabric_has_the_links_of_the_gpu(name):
    gpu = gpu_of(name)
    fabric = usual_fabric(gpu)
    expected = gpu.nvlink.bandwidth if gpu.nvlink else gpu.pcie_bandwidth
    assert fabric.levels[0].bandwidth == expected
    assert fabric.levels[0].kind == ("nvlink" if gpu.nvlink else "pcie")


@pytest.mark.parametrize("name", ["a100-80", "h100", "h200", "b200", "b300", "h100-pcie", "a100-80-pcie"])
def test_the_fabric_assumed_of_a_gpu_is_that_of_the_boxes_it_is_sold_in(name):
    """Every level the two have in common, but for switches that add numbers: those are not assumed."""
    gpu = gpu_of(name)
    usual, assumed = usual_fabric(gpu), assumed_fabric(gpu)
    rates = [level.bandwidth for level in usual.levels]
    assert rates == [level.bandwidth for level in assumed.levels][: len(rates)]
    for known, guess in zip(usual.levels, assumed.levels, strict=False):
        assert (known.kind, known.latency_s) == (guess.kind, guess.latency_s)
    assert assumed.levels[0] == usual.levels[0]
    assert name in assumed.assumed


def test_a_drivers_name_is_of_one_gpu():
    forms = {name: form for name in GPUS if (form := catalog.entry("gpus", name).get("driver_name"))}
    assert forms.keys() == {name for name in GPUS if gpu_of(name).vendor != "Google"}
    for reported in REPORTED:
        assert [name for name, form in forms.items() if re.search(form, reported.lower())] == [catalog_gpu(reported)]


def test_no_two_gpus_share_a_name():
    spellings = [s.lower() for n in GPUS for s in (n, *gpu_of(n).aliases)]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize("file", ["steps.csv", "steps_small.csv", "gemm.csv", "collectives.csv", "layer_times.csv"])
def test_the_measured_tables_name_gpus_we_know(file):
    with truth(file).open(newline="") as rows:
        spellings = {row["gpu"] for row in csv.DictReader(rows)} - {"", "PCIe4", "PCIe5"}
    assert spellings
    for spelling in spellings:
        assert gpu_of(spelling)


@pytest.mark.parametrize(
    ("name", "bf16", "fp8", "memory_mib", "bandwidth", "nvlink"),
    [
        ("a100-80", 312e12, None, 81920, 2.039e12, 300e9),
        ("h100", 989.4e12, 1979e12, 81559, 3.35e12, 450e9),
        ("h200", 989.4e12, 1979e12, 143771, 4.8e12, 450e9),
        ("h800", 989.4e12, 1979e12, 81559, 3.35e12, 200e9),
        ("b200", 2250e12, 4500e12, 183359, 8e12, 900e9),
    ],
)
def test_published_figures(name, bf16, fp8, memory_mib, bandwidth, nvlink):
    gpu = gpu_of(name)
    assert gpu.peak_flops["bf16"] == bf16
    assert gpu.peak_flops.get("fp8") == fp8
    assert gpu.memory_bytes == memory_mib * 2**20
    assert gpu.memory_bandwidth == pytest.approx(bandwidth)
    assert gpu.nvlink.bandwidth == nvlink


def test_answers_of_the_scaling_book():
    h100, b200 = gpu_of("h100"), gpu_of("b200")
    assert h100.fp32_cores == 16896 == h100.sms * 128
    assert h100.fp32_cores * h100.base_clock_hz == pytest.approx(26.9e12, rel=0.002)
    assert h100.fp32_cores * h100.boost_clock_hz == pytest.approx(33.5e12, rel=0.002)
    assert round(h100.peak("bf16") / h100.memory_bandwidth) == 295
    assert round(b200.peak("bf16") / b200.memory_bandwidth) == 281
    assert h100.sms * h100.shared_bytes_per_sm == 33 * 2**20
    assert b200.sms == 148


@pytest.mark.parametrize("name", PRICED)
def test_a_price_is_a_dated_range(name):
    price = price_of(name)
    assert price.gpu == name
    for low, high in filter(None, (price.on_demand, price.reserved)):
        assert 0.1 < low <= high < 30
    if price.reserved:
        assert price.reserved[0] < price.on_demand[0]
    assert len(price.source) > 10
    assert re.fullmatch(r"20\d\d-\d\d", price.date)


def test_electricity():
    power = electricity()
    assert 1 <= power.pue < 2
    energy_j = 50_000 * 350 * 60 * 86400
    assert energy_j / 3.6e9 == 25_200
    assert power.usd(energy_j) == pytest.approx(2.52e6 * power.pue)


def test_a_gpu_without_a_price_says_so():
    with pytest.raises(ValueError, match=r"no published price for gpu 'tpu-v5p'; .*h100"):
        price_of("tpu-v5p")
