"""A profile: read strictly, written back, laid over curve, stack and network."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shardwise.cost.calibrate.from_collectives import network_fit
from shardwise.cost.calibrate.from_points import profile_from_points
from shardwise.cost.calibrate.overlay import as_measured, curve_with, network_with, stack_with
from shardwise.cost.calibrate.profile import (
    Factors,
    GemmConstants,
    HostMeasurement,
    LearnedRun,
    NetworkFit,
    Profile,
    profile_from,
    profile_of,
)
from shardwise.cost.calibrate.profile_toml import to_toml
from shardwise.cost.gpu import attention_seconds, curve_of, gemm_seconds, memory_seconds
from shardwise.plan import scan
from shardwise.question.studies.build import report_of
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of, gpu_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.reported import catalog_gpu
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

H200 = gpu_of("h200")
CLUSTER = cluster_of("8xh200")
MODEL, JOB, POLICY = model_of("llama-3-8b"), Job(seq=4096, global_batch=64), Policy(dp=4, tp=2)
SLOW = Profile(
    name="slow", device="h200", torch="2.11.0", date="2026-11-15", memory_bandwidth=4.8e12, kernel_floor_s=3e-6,
    peak_flops={"bf16": H200.peak("bf16")},
    gemm={"bf16": GemmConstants(e_max=0.5, sustained=0.9, k0=40.0, wave=100.0, memory_efficiency=0.9)},
    memory={"stream": 0.5}, host=HostMeasurement(seconds_per_op=9e-6),
    network=NetworkFit(factors={"nvlink": Factors(latency=3.0, bandwidth=0.5)}),
    measured={"gemm": ({"dtype": "bf16", "m": 8, "n": 8, "k": 8, "seconds": 1e-6},)},
)  # fmt: skip
START = b'name = "x"\ndevice = "h200"\n'


def test_a_profile_survives_its_file(tmp_path):
    path = tmp_path / "slow.toml"
    path.write_text(to_toml(SLOW))
    assert profile_of(path) == SLOW
    run = LearnedRun(source='a "log"', job="a", stack="b", measured_s=1.0, predicted_s=2.0, causes={"level": 1.0},
                     memory_offset_bytes=7e9)  # fmt: skip
    whole = replace(SLOW, runs=(run,), complete=False, reported="NVIDIA\tH200")
    assert profile_from(to_toml(whole).encode(), "x") == replace(whole, reported="NVIDIAH200")


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        (b'device = "h200"\n', "name", "missing"),
        (START + b"[gemm.bf16]\ne_max = 2.0\nk0 = 1\nwave = 1\nmemory_efficiency = 0.5\n", "gemm", "<= 1.0"),
        (START + b"[gemm.bf16]\ne_max = 0.5\nk0 = 1\nwave = 1\nmemory_efficiency = 0.5\n", "peak_flops", "no bf16"),
        (START + b"[memory]\nstream = 0.5\n", "memory_bandwidth", "missing"),
        (START + b"kernel_floor_s = nan\n", "kernel_floor_s is nan", ">= 0"),
        (START + b"[host]\nseconds_per_op = 'fast'\n", "host.seconds_per_op is 'fast'", "float"),
        (START + b"[network.factors.nvlnk]\nlatency = 1.0\n", "network.factors", "nvlnk"),
        (START + b"colour = 1\n", "colour", "unknown"),
        (b"version = 7\n", "version is 7", "calibrate again"),
        (b"name = \n", "TOML", "line 1"),
        (b"\xff\xfe", "TOML", "utf-8"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(text, field, said):
    with pytest.raises(ValueError, match=r"profile bad\.toml") as error:
        profile_from(text, "bad.toml")
    assert field in str(error.value)
    assert said in str(error.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        profile_of(tmp_path / "none.toml")
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (5 * 2**20))
    with pytest.raises(ValueError, match="larger than 4 MiB"):
        profile_of(large)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)), st.integers(0, 1000))
def test_no_file_ends_in_another_error(junk, at):
    whole = to_toml(SLOW).encode()
    for raw in (junk, whole[: at % len(whole)] + junk + whole[at % len(whole) :]):
        try:
            said = profile_from(raw, "x").words
        except ValueError as error:
            said = str(error)
        assert said.startswith("profile ")


def test_the_curve_takes_what_was_measured_and_keeps_the_rest():
    shipped, mine = curve_of(H200), curve_with(H200, SLOW)
    assert gemm_seconds(mine, 8192, 8192, 8192) > 1.4 * gemm_seconds(shipped, 8192, 8192, 8192)
    assert gemm_seconds(mine, 8192, 8192, 8192, "fp16") > 1.4 * gemm_seconds(shipped, 8192, 8192, 8192, "fp16")
    assert mine.gemm_law("fp8") == shipped.gemm_law("fp8")
    assert mine.gemm_law("bf16").wgrad_fp32 == shipped.gemm_law("bf16").wgrad_fp32
    assert memory_seconds(mine, 1e9) > 1.6 * memory_seconds(shipped, 1e9)
    assert mine.memory["norm"] == shipped.memory["norm"]
    assert mine.attention == shipped.attention
    assert "slow" in mine.source
    assert curve_with(H200, Profile(name="empty", device="H200-SXM")) == replace(shipped, source="profile empty")


def test_another_gpu_is_refused():
    with pytest.raises(ValueError, match="measured on 'h200', the cluster has 'h100'"):
        curve_with(gpu_of("h100"), SLOW)
    with pytest.raises(ValueError, match="leave --profile out"):
        estimate(case_of(MODEL, cluster_of("8xh100"), JOB, stack_of("torchtitan"), SLOW), Policies.of([POLICY]))


def test_the_host_of_a_stack():
    assert stack_with(stack_of("torchtitan"), SLOW).host.host_s_per_op == 9e-6
    fitted = stack_of("nanotron")
    assert "host_s_per_op" in fitted.fitted
    assert stack_with(fitted, SLOW).host.host_s_per_op == fitted.host.host_s_per_op
    assert stack_with(fitted, None) is fitted


def test_every_reader_of_a_profile_gives_the_same_step():
    stack = stack_of("torchtitan")
    plain = float(
        estimate(case_of(MODEL, CLUSTER, JOB, stack), Policies.of([POLICY]), every_stage=True).times.step_s[0]
    )
    slow = estimate(case_of(MODEL, CLUSTER, JOB, stack, SLOW), Policies.of([POLICY]), every_stage=True)
    step = float(slow.times.step_s[0])
    assert step > 1.3 * plain
    report = report_of(case_of(MODEL, CLUSTER, JOB, stack, SLOW), POLICY)
    assert report.step_s == pytest.approx(step)
    assert any("nvlink latency x 3" in line for line in report.assumptions)
    assert any("profile slow" in line for line in report.assumptions)
    best = scan(case_of(MODEL, CLUSTER, JOB, stack, SLOW), top=1).best[0]
    alone = estimate(case_of(MODEL, CLUSTER, JOB, stack, SLOW), Policies.of([best.policy]), every_stage=True)
    assert best.step_s == pytest.approx(float(alone.times.step_s[0]))


def test_factors_of_the_network():
    plain, slow = network_with(CLUSTER, {}), network_with(CLUSTER, {"nvlink": Factors(latency=3.0, bandwidth=0.5)})
    tiny, huge = plain.seconds("all_gather", 1e3, 8), plain.seconds("all_gather", 4e9, 8)
    assert slow.seconds("all_gather", 1e3, 8) == pytest.approx(3 * tiny, rel=0.1)
    assert slow.seconds("all_gather", 4e9, 8) == pytest.approx(2 * huge, rel=0.1)


@pytest.mark.parametrize(("latency", "bandwidth"), [(1.0, 1.0), (2.5, 0.7), (0.6, 1.2)])
def test_factors_are_found_again(latency, bandwidth):
    truth = network_with(CLUSTER, {"nvlink": Factors(latency=latency, bandwidth=bandwidth)})
    points = [
        {"op": op, "bytes": 2**p, "ranks": 8, "nodes": 1, "seconds": float(truth.seconds(op, 2.0**p, 8))}
        for op in ("all_reduce", "all_gather", "reduce_scatter") for p in range(12, 31, 3)
    ]  # fmt: skip
    found = network_fit(points, CLUSTER)
    assert found.factors["nvlink"].latency == pytest.approx(latency, rel=0.05)
    assert found.factors["nvlink"].bandwidth == pytest.approx(bandwidth, rel=0.05)
    assert network_fit(points, None).factors == {}
    assert found.fitted["all_gather"].bus_bytes_per_s > 1e10


def test_constants_are_found_again():
    wanted = replace(SLOW, attention={})
    truth = curve_with(H200, wanted)
    shapes = [
        (m, n, k) for m in (512, 2048, 8192) for n, k in ((1024, 1024), (4096, 4096), (14336, 4096), (4096, 14336))
    ]
    gemm = [
        {"dtype": "bf16", "m": m, "n": n, "k": k, "seconds": float(gemm_seconds(truth, m, n, k))} for m, n, k in shapes
    ]
    cases = [
        (1, 32, 8192, 128),
        (2, 32, 4096, 128),
        (8, 16, 1024, 64),
        (4, 16, 2048, 128),
        (16, 16, 512, 64),
        (1, 8, 16384, 128),
    ]
    attention = [
        {
            "batch": b, "heads": h, "seq": s, "head_dim": d, "pass": "forward", "flops": 2.0 * b * h * s * s * d,
            "seconds": 1.3 * float(attention_seconds(truth, 2.0 * b * h * s * s * d, s, d, b * h)),
        }
        for b, h, s, d in cases
    ]  # fmt: skip
    memory = [
        {"op": "copy", "elements": n, "bytes": 4 * n, "seconds": float(memory_seconds(truth, 4.0 * n))}
        for n in (2**26, 2**28)
    ]
    launch = [{"what": "kernel_floor", "seconds": 3e-6}, {"what": "host", "seconds": 8e-6}]
    clock = [{"what": "burst", "dtype": "bf16", "seconds": 9e-4}, {"what": "hot", "dtype": "bf16", "seconds": 1e-3}]
    points = {"gemm": gemm, "attention": attention, "memory": memory, "launch": launch, "clock": clock}
    found = profile_from_points(Profile(name="found", device="h200"), points, H200)
    law = found.gemm["bf16"]
    assert law.e_max == pytest.approx(0.5, rel=0.03)
    assert law.sustained == pytest.approx(0.9, rel=0.01)
    assert found.memory["stream"] == pytest.approx(0.5, rel=0.01)
    assert found.host == HostMeasurement(seconds_per_op=8e-6)
    mine = curve_with(H200, found)
    predicted = np.array([float(gemm_seconds(mine, m, n, k)) for m, n, k in shapes])
    assert np.abs(predicted / np.array([row["seconds"] for row in gemm]) - 1).max() < 0.05
    for row in attention:
        again = attention_seconds(mine, row["flops"], row["seq"], row["head_dim"], row["batch"] * row["heads"])
        assert float(again) == pytest.approx(row["seconds"], rel=0.1)
    assert profile_from(to_toml(found).encode(), "x").gemm["bf16"].e_max == pytest.approx(law.e_max, rel=1e-5)


def test_a_device_without_a_datasheet():
    gemm = [{"dtype": "fp32", "m": m, "n": 256, "k": 256, "seconds": 2 * m * 256 * 256 / 5e10} for m in (64, 128, 256)]
    found = profile_from_points(Profile(name="cpu", device="cpu"), {"gemm": gemm}, None)
    assert found.peak_flops["fp32"] * found.gemm["fp32"].e_max == pytest.approx(5e10, rel=0.1)


def test_rates_reached_in_place_of_the_datasheet():
    found = as_measured(CLUSTER, SLOW)
    assert found.gpu.peak("bf16") == pytest.approx(0.45 * H200.peak("bf16"))
    assert found.gpu.memory_bandwidth == pytest.approx(2.4e12)
    assert found.levels[0].bandwidth == pytest.approx(0.5 * CLUSTER.levels[0].bandwidth)


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-80"), ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA A100 80GB PCIe", "a100-80-pcie"),
        ("NVIDIA B200", "b200"), ("NVIDIA GB200", "gb200"), ("NVIDIA H20", "h20"), ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"), ("h100-96", "h100-96"), ("NVIDIA T4", None), ("", None),
    ],
)  # fmt: skip
def test_names_that_drivers_report(reported, name):
    assert catalog_gpu(reported) == name
