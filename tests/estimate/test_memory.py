"""Memory: the published formulas, and what sharding must do."""

import numpy as np
import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.work.case import case_of

CLUSTER = cluster_of("dgx-a100:64")
JOB = Job(seq=2048, global_batch=64)
GPT = model_of("megatron-22b")


def of(policy: Policy, model: str = "megatron-22b", job: Job = JOB) -> Estimate:
    stack = stack_of("megatron-core@2021")
    return estimate(case_of(model_of(model), CLUSTER, job, stack), Policies.of([policy]), every_stage=True)


def test_mixed_precision_adam_is_2_plus_2_plus_12_bytes() -> None:
    """fp16 weights and gradients, fp32 master, m and v."""
    job = Job(seq=2048, global_batch=64, precision=PRECISIONS["fp16"])
    kinds = of(Policy(dp=64, zero=0), "gpt2", job).memory.kinds
    states = sum(kinds[name][0, 0] for name in ("parameters", "gradients", "optimizer"))
    assert states == pytest.approx(16 * parameters(model_of("gpt2")))


def test_zero_shards_one_kind_more_each_stage() -> None:
    kinds = [of(Policy(dp=64, zero=z)).memory.kinds for z in range(4)]
    for stage, name in ((1, "optimizer"), (2, "gradients"), (3, "parameters")):
        whole, sharded = kinds[stage - 1][name][0, 0], kinds[stage][name][0, 0]
        assert sharded == pytest.approx(whole / 64)


def test_hsdp_shards_over_its_group_only() -> None:
    group = of(Policy(dp=64, zero=3, shard_group=8)).memory.kinds
    every = of(Policy(dp=64, zero=3)).memory.kinds
    assert group["parameters"][0, 0] == pytest.approx(8 * every["parameters"][0, 0])


def test_activation_formula_of_korthikanti() -> None:
    """Per layer, with tensor and sequence parallelism t and selective recompute: 34 s b h / t bytes."""
    seq, batch, hidden, heads, tp = 2048, 4, 6144, 64, 8
    work = of(Policy(dp=8, tp=tp, micro_batch=batch, attention="plain")).work
    none, selective, full = (np.asarray(x).ravel()[0] for x in work.kinds[0].saved_bytes())
    sbh = seq * batch * hidden
    assert none == pytest.approx((34 * sbh + 5 * heads * seq * seq * batch) / tp)
    assert selective == pytest.approx(34 * sbh / tp)
    assert full == pytest.approx(2 * sbh / tp)


def test_first_stage_holds_most_activations_and_ends_hold_the_tables() -> None:
    memory = of(Policy(dp=8, pp=8)).memory
    held = memory.kinds["activations"][0]
    assert (np.diff(held[:-1]) < 0).all()
    assert memory.kinds["logits"][0, :-1].sum() == 0
    assert memory.kinds["logits"][0, -1] > 0
    weights = memory.kinds["parameters"][0]
    assert weights[0] > weights[1]
    assert weights[-1] > weights[1]


def test_parameters_over_all_ranks_are_the_model() -> None:
    model = model_of("llama-3-8b")
    for tp, pp in ((1, 1), (2, 4), (8, 8)):
        result = of(Policy(dp=64 // (tp * pp), tp=tp, pp=pp, zero=0), "llama-3-8b").memory
        norms = (tp - 1) * (2 * 32 + 1) * model.hidden
        total = result.kinds["parameters"][0].sum() * tp / 2
        assert total == pytest.approx(parameters(model) + norms)


def test_offload_moves_bytes_to_the_host() -> None:
    here, there = of(Policy(dp=64)), of(Policy(dp=64, offload="both"))
    assert there.memory.peak[0] < here.memory.peak[0]
    assert there.memory.host_bytes[0] > 0
    assert there.times.step_s[0] > here.times.step_s[0]


def test_interleaving_holds_more() -> None:
    job = Job(seq=2048, global_batch=512)
    plain = of(Policy(dp=8, pp=8), job=job).memory.kinds["activations"][0, 0]
    chunked = of(Policy(dp=8, pp=8, vpp=6, schedule="interleaved"), job=job).memory.kinds["activations"][0, 0]
    assert plain < chunked < 2 * plain


@pytest.mark.parametrize(("schedule", "vpp"), [("gpipe", 1), ("looped_bfs", 2)])
def test_logits_of_every_micro_batch_wait_where_all_forwards_come_first(schedule: str, vpp: int) -> None:
    piled = of(Policy(dp=8, tp=2, pp=4, vpp=vpp, schedule=schedule))
    alone = of(Policy(dp=8, tp=2, pp=4))
    micro_batches = piled.work.layout.micro_batches[0]
    assert micro_batches == 8
    assert piled.memory.kinds["logits"][0, -1] == pytest.approx(8 * alone.memory.kinds["logits"][0, -1])
    assert piled.memory.kinds["logits"][0, :-1].sum() == 0


@pytest.mark.parametrize(("stack", "reserved_gib"), [("torchtitan", 30.89), ("torchtitan@2024", 47.65)])
def test_llama_3_8b_under_torchtitan_before_and_after_its_loss_was_compiled(stack: str, reserved_gib: float) -> None:
    """Eight H100, 8,192 tokens, selective recompute by operation: pytorch/ao, docs/source, its pretraining.rst
    (June 2025) and training.md (March 2025)."""
    used = stack_of(stack)
    job = Job(seq=8192, global_batch=8, precision=used.precision_for("bf16"))
    case = case_of(model_of("llama-3-8b"), cluster_of("8xh100"), job, used)
    found = estimate(case, Policies.of([Policy(dp=8, zero=3, recompute="selective")])).memory
    assert found.peak[0] / 2**30 == pytest.approx(reserved_gib, rel=0.13)


def test_what_a_compiler_keeps_of_selective_recompute() -> None:
    """Queries, values, attention's output and the gate, beside the layer's input (torchtitan's save list without the
    last product, which no backward reads)."""
    model = model_of("llama-3-8b")
    h, kv, ffn = 4096, 1024, 14336
    job = Job(seq=8192, global_batch=8, precision=PRECISIONS["fsdp-mixed-reduce32"])
    case = case_of(model, cluster_of("8xh100"), job, stack_of("torchtitan"))
    kept = estimate(case, Policies.of([Policy(dp=8, zero=3, recompute="selective")])).memory.kinds["activations"][0, 0]
    assert kept == pytest.approx(32 * 2 * 8192 * (h + h + kv + h + ffn), rel=0.02)
