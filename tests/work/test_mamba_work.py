"""What a Mamba-2 layer computes, moves, keeps and sends, by hand counts; tensor parallelism splits all of it."""

import numpy as np
import pytest

from shardwise.spec.arch import model_from_config, model_of
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import known_stack
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.mfu import attention_flops_per_token
from shardwise.work import Work, work_of
from shardwise.work.case import case_of, training_of
from shardwise.work.mamba import scan_flops_per_token
from shardwise.work.ops import LayerWork

STACK = known_stack("megatron-core")
SEQ = 1024
SMALL = model_from_config(
    {
        "model_type": "nemotron_h", "hidden_size": 512, "hybrid_override_pattern": "M*-E", "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 1024, "mamba_num_heads": 16,
        "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "chunk_size": 128, "moe_intermediate_size": 256,
        "moe_shared_expert_intermediate_size": 512, "n_routed_experts": 8, "num_experts_per_tok": 2,
        "moe_latent_size": 128, "vocab_size": 1024,
    },
    "small",
)  # fmt: skip


def work(model: Model, **degrees: int) -> Work:
    policy = Policy(**degrees)
    return work_of(
        training_of(model, Job(seq=SEQ, global_batch=policy.dp), STACK), Policies.of([policy]), every_stage=True
    )


def one(value: object) -> float:
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])


def flops(part: LayerWork) -> float:
    return sum(2.0 * one(g.m) * one(g.n) * one(g.k) * one(g.batch) for g in part.gemms)


def test_products_by_hand() -> None:
    """inner 16 x 64 = 1,024; B and C 2 x 8 x 128 = 2,048; outputs 2 x 1,024 + 2,048 + 16 = 4,112 of 512 inputs; the
    output product is 512 of 1,024."""
    assert flops(work(SMALL).kinds[0]) == 2 * SEQ * (4112 * 512 + 512 * 1024)


def test_scan_flops_by_hand() -> None:
    """Per token, chunk 128: C·B 2·128·128 for each of 8 groups; half of 2·128·64 for each of 16 heads; twice 2·128·64
    for each head."""
    mamba = SMALL.kinds[0].mamba
    assert mamba is not None
    by_hand = 8 * 2 * 128 * 128 + 16 * 128 * 64 + 16 * 2 * 2 * 128 * 64
    assert scan_flops_per_token(mamba) == by_hand
    only = attention_flops_per_token(SMALL, SEQ, causal_half=False)
    # attention: two products of 64 wide heads, 8 of them, over 1,024 keys
    assert only == by_hand + 2 * SEQ * 8 * (64 + 64)


def test_scan_bytes_by_hand() -> None:
    """Per token: 3 x 1,024 inputs and outputs and 2 x 2,048 of B and C in 16 bits; four passes over 1,024 fp32 states
    (state and chunk are alike); 128 fp32 scores for each of 8 groups, written and read."""
    scan = work(SMALL).kinds[0].scan
    assert scan is not None
    forward = 2 * (3 * 1024 + 2 * 2048) + 4 * 4 * 1024 + 2 * 4 * 128 * 8
    assert one(scan.forward_bytes) == SEQ * forward
    backward = forward + 2 * (4 * 1024 + 4 * 2048) + 2 * 4 * 4 * 1024 + 4 * 4 * 128 * 8
    assert one(scan.backward_bytes) == SEQ * backward


def test_saved_tensors_by_hand() -> None:
    """The layer's input and its norm, what was projected, the scan's output, and the gated norm's: all in 16 bits."""
    part = work(SMALL).kinds[0]
    none, _, full = part.saved_bytes()
    assert one(none) == 2 * SEQ * (512 + 512 + 4112 + 1024 + 1024)
    assert one(full) == 2 * SEQ * 512


def test_latent_experts_by_hand() -> None:
    """Router 8 x 512; down to 128 and up again; 2 experts of 256 on the latent; a shared one of 512 on the width."""
    products = 8 * 512 + 2 * 512 * 128 + 2 * 2 * 128 * 256 + 2 * 512 * 512
    assert flops(work(SMALL).kinds[3]) == 2 * SEQ * products
    sent = [c for c in work(SMALL, dp=4, ep=4).kinds[3].collectives if c.op == "all_to_all"]
    # 1,024 tokens to 2 experts each, 128 numbers of 2 bytes
    assert {one(c.bytes) for c in sent} == {1024 * 2 * 128 * 2}


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallel_parts_add_up(tp: int) -> None:
    whole, cut = work(SMALL).kinds[0], work(SMALL, tp=tp).kinds[0]
    assert tp * flops(cut) == pytest.approx(flops(whole), rel=1e-12)
    assert whole.scan is not None
    assert cut.scan is not None
    assert tp * one(cut.scan.forward_bytes) == one(whole.scan.forward_bytes)
    assert tp * one(cut.scan.backward_bytes) == one(whole.scan.backward_bytes)
    assert tp * one(cut.saved_bytes()[0]) == one(whole.saved_bytes()[0])


@pytest.mark.parametrize("tp", [1, 2])
def test_parameters_of_ranks_add_up(tp: int) -> None:
    """Up to one key/value head per rank all but norms, router and latent projections is cut."""
    found = work(SMALL, tp=tp, ep=1)
    dense, expert = (one(part) for part in found.parameters)
    assert parameters(SMALL) == tp * (dense + expert) - (tp - 1) * sum(
        count.whole for count in (*found.counts.kinds, found.counts.head)
    )


def test_it_sends_what_attention_sends() -> None:
    """With sequence parallelism a gather and a reduce-scatter of the model width each way, like any column/row pair."""
    mamba, dense = (work(SMALL, tp=4).kinds[kind].collectives for kind in (0, 2))
    seen = [sorted((c.op, c.phase, one(c.bytes), one(c.count)) for c in part if c.axis == "tp" and one(c.count))
            for part in (mamba, dense)]  # fmt: skip
    assert seen[0] == seen[1] != []


def test_context_parallelism_exchanges_heads() -> None:
    part = work(SMALL, cp=2).kinds[0]
    sent = [(c.op, one(c.bytes)) for c in part.collectives if c.axis == "cp" and one(c.count)]
    tokens = SEQ / 2
    assert sent == [("all_to_all", 2 * tokens * 4112), ("all_to_all", 2 * tokens * 1024)] * 2


def test_one_block_launches_half_of_two() -> None:
    assert {part.ops_share for part in work(SMALL).kinds} == {0.5}
    plain = work(model_of("llama-3-8b")).kinds
    assert [(part.ops_share, part.scan) for part in plain] == [(1.0, None)]


def test_prediction_layers_run_their_own_kinds() -> None:
    """Super's head stage runs one attention and one expert layer more for each of two passes."""
    job, cluster = Job(seq=SEQ, global_batch=8), cluster_of("gb300-nvl72:8")
    super_ = model_of("nemotron-3-super")
    found = estimate(case_of(super_, cluster, job, STACK), Policies.of([Policy(dp=8, ep=8)]), every_stage=True)
    *kinds, _, head = found.times.units
    extra = sum(float(kinds[kind].total[0]) for kind in super_.mtp_kinds)
    assert float(head.total[0]) > 2 * extra


def test_the_scan_does_not_speed_up_with_the_memory() -> None:
    """H200 has H100's multiprocessors and 1.43 times its bandwidth: a scan-heavy step gains less than half of that."""
    job, policies = Job(seq=SEQ, global_batch=8), Policies.of([Policy(dp=8, zero=0, ep=8)])
    only = model_from_config(
        {"model_type": "nemotron_h", "hidden_size": 1024, "hybrid_override_pattern": "ME", "num_attention_heads": 8,
         "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 512, "n_groups": 8, "vocab_size": 256,
         "moe_intermediate_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 1}, "scan",
    )  # fmt: skip
    unit = [float(estimate(case_of(only, cluster_of(f"8x{gpu}"), job, STACK), policies, every_stage=True)
                  .times.units[0].parts["forward"][0]) for gpu in ("h100", "h200")]  # fmt: skip
    assert 1.0 <= unit[0] / unit[1] < 1.2


def test_a_hybrids_exchange_is_exposed() -> None:
    """No layer has compute beside its exchange; a transformer of the same stack hides part of its own."""
    job, policies = Job(seq=SEQ, global_batch=8), Policies.of([Policy(dp=8, ep=8)])
    for name, hidden in (("nemotron-3-nano", False), ("qwen3-30b-a3b", True)):
        times = estimate(case_of(model_of(name), cluster_of("8xh100"), job, STACK), policies, every_stage=True).times
        assert (float(times.hidden["ep"][0]) > 0) == hidden
        assert float(times.parts["ep_comm"][0]) > 0
