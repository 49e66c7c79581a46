"""Memory of long sequences: measured peaks of one GPU, PyTorch's ring, and shards that leave with the moments."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.load import cluster_from, gpu_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.work.case import case_of

TIMED = Path(__file__).parents[2] / "evidence" / "timed" / "long-sequences-h200.csv"
STATED = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 32000,
    "tie_word_embeddings": False, "rms_norm_eps": 1e-6, "hidden_act": "silu", "max_position_embeddings": 600_000,
    "rope_theta": 1e6,
}  # fmt: skip
TRL = stack_of("hugging-face@trl")


def at(model, gpu: str, gpus: int, seq: int, precision: str, policy: Policy, stack=TRL) -> Estimate:
    job = Job(seq=seq, global_batch=1, precision=PRECISIONS[precision])
    case = case_of(model, cluster_from(gpu_of(gpu), gpus, 8, 50e9), job, stack)
    return estimate(case, Policies.of([policy]), every_stage=True)


def test_peaks_of_one_gpu_are_those_measured(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(STATED), encoding="utf-8")
    with TIMED.open(newline="", encoding="utf-8") as file:
        rows = [{name: int(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    stack, policy = TRL.changed(chunk_tokens=1024), Policy(zero=0, recompute="full")
    peaks = [
        float(at(model_of(str(config)), "H200", 1, row["seq"], "bf16-pure", policy, stack).memory.peak[0])
        for row in rows
    ]
    assert peaks == pytest.approx([row["peak_alloc_bytes"] for row in rows], rel=0.08)
    assert peaks[-1] == pytest.approx(rows[-1]["peak_alloc_bytes"], rel=0.02)


MILLION = Policy(cp=8, zero=3, recompute="full", offload="activations")


def test_a_ring_in_fp32_counts_where_it_is_more_than_a_layers_products():
    """A narrow model's gathered keys and values and sums in fp32, a wide one's products."""
    plain = TRL.changed(rings_in_fp32=False)
    for name, more in (("qwen3-0.6b", True), ("qwen3-32b", False)):
        ring, without = (
            float(at(model_of(name), "H100", 8, 2**20, "fsdp-mixed", MILLION, s).memory.peak[0]) for s in (TRL, plain)
        )
        assert (ring > 1.3 * without) is more
        alone = Policy(zero=3, recompute="full")
        one, other = (at(model_of(name), "H100", 1, 8192, "fsdp-mixed", alone, s).memory.peak for s in (TRL, plain))
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("leaves", "kinds"), [
    ("", {"optimizer"}), ("gradients", {"optimizer", "gradients"}),
    ("weights", {"optimizer", "gradients", "parameters"}),
])  # fmt: skip
def test_what_leaves_with_the_moments(leaves: str, kinds: set[str]) -> None:
    stack, model = TRL.changed(leaves_with_moments=leaves), model_of("qwen3-8b")
    here, away = (
        at(model, "H100", 8, 8192, "fsdp-mixed", Policy(dp=1, cp=8, zero=3, offload=offload), stack).memory.kinds
        for offload in ("none", "optimizer")
    )
    assert {kind for kind in here if (away[kind] < here[kind]).any() and kind != "overhead"} == kinds


def test_sums_on_the_host_are_copied_in_every_micro_batch() -> None:
    """DeepSpeed's: up and down again from the second one on, of 16-bit gradients."""
    model, policy = model_of("qwen3-8b"), Policy(dp=8, zero=3, recompute="full", offload="optimizer")
    stack = stack_of("deepspeed")
    seconds = []
    for batch in (8, 32):
        job = Job(seq=2048, global_batch=batch, precision=PRECISIONS["bf16-grad16"])
        case = case_of(model, cluster_from(gpu_of("H100"), 8, 8, 50e9), job, stack)
        found = estimate(case, Policies.of([policy]), every_stage=True)
        seconds.append(float(found.times.parts["optimizer"][0]))
    shard = float(found.work.parameters[0][0, 0]) / 8
    rate = min(gpu_of("H100").pcie_bandwidth, gpu_of("H100").host_bandwidth)
    assert seconds[1] - seconds[0] == pytest.approx(3 * 2 * 2 * shard / rate, rel=0.01)
