"""What programs do besides the arithmetic, one setting at a time: the terms their measured runs asked for."""

import numpy as np
import pytest

from shardwise.spec.arch import model_from_shape, model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_from
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack, stack_of
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.step.estimate.odd_rows import ODD_READ, ODD_WRITE, UNEVEN_READ, odd_rows
from shardwise.step.simulate import simulate
from shardwise.work.case import case_of

PLAIN = stack_of("nanotron").changed(
    boundary_message_s=0.0,
    stall_s_per_peer=0.0,
    tp_backward_hidden=0.0,
)
MODEL = model_of("llama-2-7b")
LAYERS = MODEL.layers


def of(policy: Policy, stack: Stack, batch: int = 64) -> Estimate:
    job = Job(seq=4096, global_batch=batch)
    return estimate(
        case_of(MODEL, cluster_from("h100", policy.gpus, 8), job, stack), Policies.of([policy]), every_stage=True
    )


def part(policy: Policy, stack: Stack, name: str) -> float:
    return float(of(policy, stack).times.parts[name][0])


@pytest.mark.parametrize(("tp", "crosses"), [(8, 0), (16, 15), (32, 31)])
def test_a_ring_over_nodes_hands_on_each_message_in_turn(tp: int, crosses: int) -> None:
    """Sequence parallel: four collectives forward and six backward in a layer, of n - 1 messages each; besides them the
    embedding has two, the head two and its loss."""
    policy = Policy(tp=tp, dp=64 // tp)
    gap, times = 1e-3, 64 / (64 // tp)
    more = part(policy, PLAIN.changed(boundary_message_s=gap), "tp_comm") - part(policy, PLAIN, "tp_comm")
    layers = times * LAYERS * 10 * crosses * gap
    assert layers <= more <= layers * (1 + 12 / (10 * LAYERS)) + 1e-12


def test_the_simulated_step_has_the_boundary_messages_too() -> None:
    stack = PLAIN.changed(boundary_message_s=1e-3)
    policy = Policy(pp=4, tp=16, dp=4, zero=0)
    job, cluster = Job(seq=4096, global_batch=64), cluster_from("h100", 256, 8)
    with_term, without = (simulate(case_of(MODEL, cluster, job, s), policy).step_s for s in (stack, PLAIN))
    closed = of(policy, stack).times.step_s[0] - of(policy, PLAIN).times.step_s[0]
    assert with_term - without == pytest.approx(closed, rel=0.05)


def test_a_collective_runs_beside_its_product_only_where_the_sequence_is_cut() -> None:
    stack = stack_of("megatron-core")
    shown = {(sp, asked): part(Policy(tp=8, dp=1, sp=sp, overlap_tp=asked), stack, "tp_comm")
             for sp in (True, False) for asked in (True, False)}  # fmt: skip
    assert shown[True, True] < 0.5 * shown[True, False]
    assert shown[False, True] == shown[False, False]


@pytest.mark.parametrize(("recompute", "passes"), [("none", 1.0), ("full", 1.5)])
def test_tensor_parallel_layers_that_python_cuts_keep_the_host_busy(recompute: str, passes: float) -> None:
    """Ten collectives in a layer with sequence parallelism, those of the forward pass again where it is recomputed."""
    stack, policy = stack_of("torch-fsdp2"), Policy(tp=8, micro_batch=1, recompute=recompute, zero=0)
    plain = stack.changed(ops_per_collective=0.0, host_s_per_op=1e-3)
    added = of(policy, plain.changed(ops_per_collective=51.0), 1).times.step_s - of(policy, plain, 1).times.step_s
    assert added[0] == pytest.approx(LAYERS * 10 * 51 * 1e-3 * passes, rel=0.03)
    assert stack.host.ops_per_collective == stack_of("fact:uncompiled").host.ops_per_collective == 51.0


def test_an_odd_vocabulary_is_slow_where_it_is_not_padded() -> None:
    model = model_from_shape("odd", 2, 1024, 16, 16, 4096, False, 50257, tied=True, positions=1024)
    job, cluster = Job(seq=1024, global_batch=8), cluster_from("a100-80", 2, 8)
    padded = stack_of("megatron-core@2021")
    bare = padded.changed(pads_whole_vocab=False)

    def seconds(tp: int, stack: Stack) -> float:
        policy = Policy(tp=tp, dp=2 // tp, sp=False, zero=0)
        return float(
            estimate(case_of(model, cluster, job, stack), Policies.of([policy]), every_stage=True).times.step_s[0]
        )

    assert seconds(1, bare) > 1.3 * seconds(1, padded)
    assert seconds(2, bare) == seconds(2, padded)


def test_odd_rows_are_slowest_where_a_copy_engine_cannot_load_them() -> None:
    """GPT-2's head on one H200, 8,192 tokens: 6.7 ms forward, 4.5 and 4.3 ms its gradients; 1.3 ms where rows of the
    logits lie apart, which its forward and the gradient of its input do not gain from."""
    even, uneven, odd = (odd_rows(columns, 768.0) for columns in (50304.0, 50260.0, 50257.0))
    assert (even, float(odd_rows(768.0, 50257.0))) == (1.0, ODD_READ)
    assert float(uneven) == UNEVEN_READ
    assert float(odd) == ODD_WRITE

    model = model_from_shape("odd", 2, 1024, 16, 16, 4096, False, 50257, tied=True, positions=1024)
    job = Job(seq=1024, global_batch=8)
    bare = stack_of("torch-eager")

    def seconds(gpu: str, stack: Stack) -> float:
        case = case_of(model, cluster_from(gpu, 1, 8), job, stack)
        return float(estimate(case, Policies.of([Policy(sp=False, zero=0)]), every_stage=True).times.step_s[0])

    def slowed(gpu: str) -> float:
        return seconds(gpu, bare) / seconds(gpu, bare.changed(pads_vocab=True, pads_whole_vocab=True))

    assert slowed("h200") > slowed("a100-80") > 1.0
    assert seconds("h200", bare.changed(keeps_rows_apart=True)) < seconds("h200", bare)


@pytest.mark.parametrize(("heads", "slow"), [(48, False), (64, False), (96, False), (128, True)])
def test_heads_that_tensor_cores_cannot_load_slow_unfused_attention(heads: int, slow: bool) -> None:
    """Of hidden 13,824: heads of 288, 216 and 144 are multiples of 8, those of 108 are not."""
    job, cluster = Job(seq=2048, global_batch=64), cluster_from("a100-80", 64, 8)
    policy = Policy(tp=8, pp=8, sp=False, zero=1, micro_batch=4, recompute="full", attention="plain")

    def seconds(count: int) -> float:
        model = model_from_shape("bloom", 64, 13824, count, count, 55296, False, 250880, tied=True, positions=2048)
        stack = stack_of("deepspeed@bigscience")
        return float(
            estimate(case_of(model, cluster, job, stack), Policies.of([policy]), every_stage=True).times.step_s[0]
        )

    # more heads write more scores: some 5 % from 64 to 128
    assert (seconds(heads) > 1.15 * seconds(64)) == slow


def test_ends_launch_what_the_stack_says() -> None:
    slow = PLAIN.changed(host_s_per_op=1e-3)
    more = slow.changed(ops_per_end=slow.host.ops_per_end + 10.0)
    policy = Policy(dp=64, zero=0)
    steps = [float(of(policy, stack).times.step_s[0]) for stack in (more, slow)]
    assert np.diff(steps)[0] == pytest.approx(-2 * 3 * 10 * 1e-3)  # two ends, forward and twice that backward


def test_the_first_flash_attention_takes_twice_as_long() -> None:
    policy = Policy(dp=8)
    first, second = (PLAIN.changed(attention_kernel=kernel) for kernel in ("flash1", "flash2"))
    none = PLAIN.changed(attention_kernel="flash2", attention_efficiency=1e9)
    for name in ("forward", "backward"):
        without = part(policy, none, name)
        assert part(policy, first, name) - without == pytest.approx(
            2.0 * (part(policy, second, name) - without), rel=0.01
        )
