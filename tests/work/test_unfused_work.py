"""What gpt-oss asks for around its products where no kernel has it inside: counted as timed on an H200."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardwise.cost.curve import curve_of
from shardwise.cost.gpu import memory_seconds
from shardwise.spec.arch import model_from_config, model_of
from shardwise.spec.hardware import gpu_of
from shardwise.spec.job import Job, precision_of
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Experts
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack, known_stack, stack_for, stack_names
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.work import work_of
from shardwise.work.case import case_of, training_of
from shardwise.work.ops import UnfusedOperations
from shardwise.work.unfused import ATOMIC_ADDS_PER_SM_S, around_experts, rotation

TIMED = Path(__file__).resolve().parents[2] / "evidence" / "timed"
EXPERTS = Experts(count=128, top_k=4, width=2880, bias=True, clamped=True)
MEGATRON, AUTOMODEL = known_stack("megatron-core"), known_stack("automodel")
CONFIG = {
    "model_type": "gpt_oss", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512, "num_local_experts": 16,
    "num_experts_per_tok": 4, "vocab_size": 1024,
}  # fmt: skip


def pieces(rows: int, experts: int) -> dict[str, UnfusedOperations]:
    """By the names of the benchmark: `rows` token copies, or tokens that are rotated."""
    clamp, bias = around_experts(EXPERTS, MEGATRON, float(rows), 5760.0, 2880, float(experts), cheap_to_repeat=False)
    up_bias, again = around_experts(
        EXPERTS, AUTOMODEL, float(rows), 5760.0, 2880, float(experts), cheap_to_repeat=False
    )
    assert again == bias
    return {"clamp": clamp, "bias": bias, "up bias": up_bias, "rotation": rotation(rows * 72.0 * 64.0)}


@pytest.mark.parametrize("file", ["around-experts-h200.csv", "around-experts-h200-again.csv"])
def test_the_counts_are_those_of_the_timings(file: str) -> None:
    """The second file took no part in choosing them."""
    curve = curve_of(gpu_of("h200"))
    with (TIMED / file).open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 18
    for row in rows:
        name = row["piece"]
        piece = pieces(int(row["rows"]), int(row["experts"]))[name]
        launches = float(piece.launches) / (2.0 if name == "rotation" else 1.0)
        assert launches == float(row["launches"]), row
        for moved, share, measured in (
            (piece.forward_bytes, 1.0, row["forward_s"]),
            (piece.backward_bytes, 2.0, row["backward_s"]),
        ):
            seconds = float(memory_seconds(curve, moved, kernels=share * float(piece.launches) / 3.0))
            # many small kernels run below the rate of large ones
            assert 0.75 < seconds / float(measured) < 1.35, (row, seconds)


def found(stack: str, cluster: str, precision: str = "bf16", **policy: Any) -> Estimate:
    job = Job(seq=4096, global_batch=1280, precision=precision_of(precision))
    policies = Policies.of([Policy(dp=64, zero=1, micro_batch=4, **policy)])
    return estimate(
        case_of(model_of("gpt-oss-120b"), cluster_of(cluster), job, known_stack(stack)), policies, every_stage=True
    )


def names(stack: Stack) -> set[str]:
    model = model_of("gpt-oss-120b")
    work = work_of(training_of(model, Job(seq=4096, global_batch=1), stack), Policies.of([Policy()]), every_stage=True)
    return {piece.name for kind in work.kinds for piece in kind.unfused}


def test_a_stack_says_what_it_leaves_to_the_framework() -> None:
    assert names(MEGATRON) == {"clamp", "expert bias", "rotation"}
    assert names(AUTOMODEL) == {"expert up bias", "expert bias"}
    assert names(known_stack("torch-eager@compiled")) == set()


def test_in_a_rack_eight_bits_have_biases_in_their_products() -> None:
    """Megatron-Bridge's recipes: what differs between a rack and nodes of eight is more than the links explain."""
    rack, nodes = (found("megatron-bridge", c, "fp8", ep=8) for c in ("gb200-nvl72:64", "dgx-b200:64"))
    sixteen = [found("megatron-bridge", c, "bf16", ep=8) for c in ("gb200-nvl72:64", "dgx-b200:64")]

    def kernels(one: Estimate) -> float:
        return float(one.times.parts["forward"][0] + one.times.parts["backward"][0])

    low, high = kernels(nodes) / kernels(rack), kernels(sixteen[1]) / kernels(sixteen[0])
    assert low > 1.25 * high


def test_selective_recompute_drops_the_experts_activation() -> None:
    none, selective, full = (
        found("megatron-bridge@26.04", "dgx-b200:64", ep=8, recompute=how) for how in ("none", "selective", "full")
    )
    copies = 4 * 4096 * 4
    # the activation and the clamped copy of what enters it, and the norms' outputs
    dropped = 36 * (copies * (2880 + 2 * 2880) + 2 * 4 * 4096 * 2880) * 2
    peaks = [float(one.memory.peak[0]) for one in (none, selective, full)]
    assert peaks[0] - peaks[1] == pytest.approx(dropped, rel=0.05)
    assert peaks[2] < peaks[1]
    steps = [float(one.times.step_s[0]) for one in (none, selective, full)]
    assert steps[0] < steps[1] < 1.12 * steps[0] < steps[2]


@pytest.mark.parametrize(
    ("scaling", "scaled"),
    [
        (None, True),
        ({"rope_type": "yarn", "factor": 32.0}, True),
        ({"rope_type": "yarn", "factor": 1.0}, False),
        ({"rope_type": "yarn", "factor": 32.0, "attention_factor": 1.0}, False),
        ({"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0}, False),
        ({"type": "yarn", "factor": 4.0}, True),
        ({"rope_type": "linear", "factor": 4.0}, False),
    ],
)
def test_yarn_scales_the_rotation_unless_its_factor_is_one(scaling: dict[str, object] | None, scaled: bool) -> None:
    config = CONFIG if scaling is None else {**CONFIG, "rope_scaling": scaling}
    assert model_from_config(config, "small").rotation_scaled is scaled


def test_other_models_have_none_of_it() -> None:
    for name in ("llama-3-8b", "qwen3-30b-a3b", "deepseek-v3"):
        model = model_of(name)
        assert not model.rotation_scaled
        work = work_of(
            training_of(model, Job(seq=4096, global_batch=1), MEGATRON), Policies.of([Policy()]), every_stage=True
        )
        assert not any(kind.unfused for kind in work.kinds)


def test_the_clamp_can_be_left_out() -> None:
    (kind, *_) = model_from_config({**CONFIG, "swiglu_limit": 0.0}, "small").kinds
    assert kind.experts is not None
    assert not kind.experts.clamped


def layer_pieces(model: str, stack: Stack, precision: str = "bf16") -> dict[str, tuple[Any, Any]]:
    """Bytes or additions, forward and backward, of what is element-wise in the first kind of layer; 4,096 tokens."""
    job = Job(seq=4096, global_batch=1, precision=stack.precision(precision))
    work = work_of(training_of(model_of(model), job, stack), Policies.of([Policy()]), every_stage=True).kinds[0]
    parts = {part.name: (part.forward_bytes, part.backward_bytes) for part in work.pointwise}
    return parts | {piece.name: (piece.atomic_adds, piece.atomic_adds) for piece in work.unfused if piece.atomic_adds}


def test_norms_of_queries_and_keys_are_written_out_like_any_other() -> None:
    eager = known_stack("torch-fsdp2")
    apart, fused = (layer_pieces("qwen3-8b", s)["query and key norm"] for s in (eager, eager.changed(fused_norm=True)))
    elements = 4096 * (32 + 8) * 128
    assert [np.asarray(each).item() / elements for each in apart] == [36.0, 76.0]
    assert [np.asarray(each).item() / elements for each in fused] == [4.0, 4.0]


def test_copies_are_summed_one_number_at_a_time_in_16_bits_only() -> None:
    eager = known_stack("torch-fsdp2")
    (adds, _) = layer_pieces("qwen3-30b-a3b", eager)["sums of copies"]
    assert np.asarray(adds).item() == 4096 * 8 * 2048
    assert "sums of copies" not in layer_pieces("qwen3-30b-a3b", eager, "autocast")
    assert "sums of copies" not in layer_pieces("qwen3-30b-a3b", MEGATRON)
    assert "sums of copies" not in layer_pieces("qwen3-8b", eager)
    assert not stack_for("a recipe with Transformer Engine layers (FSDP2)").experts.atomic_sums
    assert stack_for("a loop (FSDP2, torch.compile)").experts.atomic_sums


def test_a_b300_sums_as_fast_as_was_published() -> None:
    """whitecircle/halo: 1.5 ms a call for 65,536 rows of 2,880."""
    seconds = 65_536 * 2880 / (gpu_of("b300").sms * ATOMIC_ADDS_PER_SM_S)
    assert seconds == pytest.approx(1.5e-3, rel=0.1)


def test_gradients_of_query_key_and_value_are_written_side_by_side() -> None:
    """Where each operation is a kernel: read and written once, 2 bytes a number, of this rank's heads."""
    stack = next(each for name in stack_names() if (each := known_stack(name)).kernels.one_kernel_per_op
                 and not each.kernels.separate_projections)  # fmt: skip
    model, tp = model_of("llama-3-8b"), 2
    job = Job(seq=2048, global_batch=8, precision=precision_of("bf16"))
    layer = work_of(training_of(model, job, stack), Policies.of([Policy(dp=4, tp=tp)]), every_stage=True).kinds[0]
    split = next(each for each in layer.pointwise if each.name == "split")
    assert float(np.max(split.forward_bytes)) == 0.0
    assert float(np.max(split.backward_bytes)) == 2 * 2 * 2048 * (4096 + 2 * 1024) / tp
