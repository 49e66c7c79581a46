"""What a layer of the gated delta rule computes, moves, keeps and sends, by hand counts; heads split all of it."""

import csv
from pathlib import Path

import numpy as np
import pytest

from shardwise.cost.curve import curve_of
from shardwise.cost.gpu import memory_seconds
from shardwise.spec.arch import model_from_config, model_of
from shardwise.spec.arch.tensors import layer_tensors, parameters
from shardwise.spec.hardware import gpu_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Delta, Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import verdict_of
from shardwise.spec.software import known_stack
from shardwise.step.estimate.mfu import attention_flops_per_token
from shardwise.work import Work, work_of
from shardwise.work.case import training_of
from shardwise.work.ops import SCAN_BYTES_PER_SM_S, LayerWork

TIMED = Path(__file__).resolve().parents[2] / "evidence" / "timed"
STACK = known_stack("megatron-core")
SEQ = 1024
CONFIG = {
    "model_type": "qwen3_next", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 64, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
    "linear_key_head_dim": 128, "linear_value_head_dim": 64, "intermediate_size": 1024, "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 128, "num_experts": 16, "num_experts_per_tok": 2, "vocab_size": 1024,
}  # fmt: skip
SMALL = model_from_config(CONFIG, "small")


def work(model: Model, **degrees: int) -> Work:
    policy = Policy(**degrees)
    return work_of(
        training_of(model, Job(seq=SEQ, global_batch=policy.dp), STACK), Policies.of([policy]), every_stage=True
    )


def one(value: object) -> float:
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])


def product(part: LayerWork, name: str) -> float:
    (gemm,) = (g for g in part.gemms if g.name == name)
    return one(gemm.m) * one(gemm.n) * one(gemm.k)


def test_every_fourth_layer_attends_and_all_have_experts() -> None:
    assert SMALL.pattern == (0, 0, 0, 1)
    delta, attention = SMALL.kinds
    assert delta.delta == Delta(key_heads=4, value_heads=8, key_dim=128, value_dim=64)
    assert delta.attention is None
    assert attention.attention is not None
    assert attention.attention.gated
    assert delta.experts == attention.experts
    assert not SMALL.hybrid


def test_weights_are_named_and_shaped_as_in_the_checkpoint() -> None:
    """Keys 4 x 128, values 8 x 64: queries, keys, values and gate are 2 x 512 + 2 x 512 outputs."""
    found = {t.name.replace("{i}", "0"): t.shape for t in layer_tensors(SMALL, 0) if "linear_attn" in t.name}
    prefix = "model.layers.0.linear_attn."
    assert {name.removeprefix(prefix): shape for name, shape in found.items()} == {
        "in_proj_qkvz.weight": (2048, 512), "in_proj_ba.weight": (16, 512), "conv1d.weight": (1536, 1, 4),
        "A_log": (8,), "dt_bias": (8,), "norm.weight": (64,), "out_proj.weight": (512, 512),
    }  # fmt: skip
    (query,) = (t for t in layer_tensors(SMALL, 1) if t.role == "q.weight")
    assert query.shape == (2 * 8 * 64, 512)


def test_the_published_size() -> None:
    model = model_of("qwen3-next-80b-a3b")
    hidden, expert = 2048, 3 * 2048 * 512
    each = 512 * hidden + 513 * expert + hidden + 2 * hidden
    delta = hidden * (12_288 + 64) + 8192 * 4 + 64 + 128 + 4096 * hidden
    attention = hidden * (2 * 4096 + 2 * 512) + 4096 * hidden + 2 * 256
    assert parameters(model) == 48 * each + 36 * delta + 12 * attention + 2 * 151_936 * hidden + hidden
    assert round(parameters(model) / 1e9) == 80


def test_products_by_hand() -> None:
    """Outputs 2 x 512 + 2 x 512 + 2 x 8 = 2,064; the gate of attention is as wide as its queries."""
    delta, attention = work(SMALL).kinds
    assert product(delta, "delta in") == SEQ * 2064 * 512
    assert product(delta, "delta out") == SEQ * 512 * 512
    assert product(attention, "qkv") == SEQ * (2 * 512 + 2 * 128) * 512


def test_recurrence_by_hand() -> None:
    """Per token and value head, keys of 128, values of 64, chunks of 64: a state of 128 elements."""
    scan = work(SMALL).kinds[0].scan
    assert scan is not None
    assert scan.rule == "delta"
    carried = 2 * 128 + 2 * 64 + 128
    forward = (128 + 5 * 64) + (2 * 192 + 64) + 2 * carried
    assert one(scan.forward_bytes) == 2 * SEQ * 8 * forward
    gradients = (2 * 128 + 2 * 64) + (3 * 128 + 3 * 64 + 128) + (6 * 128 + 3 * 64 + 2 * 128)
    backward = (2 * 192 + 64) + carried + gradients + (3 * 192 + 64) + 3 * 128
    assert one(scan.backward_bytes) == 2 * SEQ * 8 * backward
    flops = 8 * 2 * (64 * (3 * 128 + 2 * 64) + 3 * 128 * 64)
    # of 4 layers the last attends: 8 heads of 64 over 1,024 keys
    assert attention_flops_per_token(SMALL, SEQ, causal_half=False) == 3 * flops + 2 * SEQ * 8 * (64 + 64)


def test_saved_tensors_by_hand() -> None:
    part = work(SMALL).kinds[0]
    mixer = {t.name: one(t.bytes) for t in part.saved if t.name.startswith("delta")}
    assert sum(mixer.values()) == 2 * SEQ * (2064 + 2 * 512 + (2 * 1024 + 512) + 8 * 64 + 512 + 512)
    gated = {t.name: one(t.bytes) for t in work(SMALL).kinds[1].saved}
    assert gated["gate and gated output"] == 2 * 2 * SEQ * 512


def test_only_gated_attention_has_a_pass_for_its_gate() -> None:
    """A pass without bytes would still cost a kernel's floor."""
    plain = work(model_of("llama-3.2-1b")).kinds[0]
    assert "gate" not in {part.name for part in plain.pointwise}
    (gate,) = (part for part in work(SMALL).kinds[1].pointwise if part.name == "gate")
    assert (one(gate.forward_bytes), one(gate.backward_bytes)) == (3 * 2 * SEQ * 512, 5 * 2 * SEQ * 512)


def test_tensor_parallelism_splits_all_of_it() -> None:
    whole, half = (work(SMALL, tp=tp).kinds[0] for tp in (1, 2))
    assert whole.scan is not None
    assert half.scan is not None
    assert one(half.scan.forward_bytes) == one(whole.scan.forward_bytes) / 2
    assert product(half, "delta in") == product(whole, "delta in") / 2
    assert any(c.name.startswith("delta") and one(c.count) for c in half.collectives)


def test_heads_bound_the_degrees() -> None:
    cluster, job = cluster_of("8xh100"), Job(seq=SEQ, global_batch=8)
    refused = verdict_of(SMALL, cluster, job, Policy(tp=2, cp=4))
    assert refused.rule == "tp divides groups"
    assert "4 key heads and 8 value heads of the delta rule" in refused.why
    assert not verdict_of(SMALL, cluster, job, Policy(tp=2, cp=2, dp=2)).rule


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"layer_types": ["linear_attention"]}, "layer_types"),
        ({"layer_types": ["linear_attention"] * 3 + ["other"]}, "layer_types"),
        ({"linear_num_value_heads": 6}, "value_heads"),
        ({"linear_key_head_dim": 0}, "linear_key_head_dim"),
    ],
)
def test_a_bad_config_is_refused_by_field(change: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        model_from_config(CONFIG | change, "bad")


def test_layer_types_may_be_listed() -> None:
    words = ["full_attention", "linear_attention", "full_attention", "linear_attention"]
    assert model_from_config(CONFIG | {"layer_types": words}, "listed").pattern == (0, 1, 0, 1)
    dense = model_from_config(CONFIG | {"mlp_only_layers": [0]}, "dense")
    assert dense.kinds[0].feed_forward is not None
    assert dense.kinds[0].delta is not None


@pytest.mark.parametrize(("name", "middle"), [("delta-h200.csv", 15.5e9), ("delta-h200-again.csv", 16.9e9)])
def test_kernels_timed_on_an_h200_are_as_the_planner_says(name: str, middle: float) -> None:
    """Where they keep the GPU busy (16,384 tokens, all heads): within a quarter. The setting is the median rate of the
    first run; the second took no part in it."""
    curve, sms = curve_of(gpu_of("h200")), gpu_of("h200").sms
    copied = curve.bandwidth * curve.memory_efficiency("stream")
    rates = []
    with (TIMED / name).open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if int(row["tp"]) > 1 or int(row["sequences"]) * int(row["seq"]) < 16_384:
                continue
            for phase in ("forward", "backward"):
                moved, seconds = float(row[f"{phase}_bytes"]), float(row[f"{phase}_s"])
                rates.append(moved / seconds / sms)
                slowed = max(copied / (sms * SCAN_BYTES_PER_SM_S["delta"]), 1.0)
                assert float(memory_seconds(curve, moved * slowed)) == pytest.approx(seconds, rel=0.25)
    assert len(rates) == 6
    assert float(np.median(rates)) == pytest.approx(middle, rel=0.01)
