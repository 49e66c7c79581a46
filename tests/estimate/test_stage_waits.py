"""What a stage sends: output and gradient of every chunk, but for the first and the last piece of the model."""

import pytest
from msgspec.structs import replace

from shardwise.spec.arch import model_from_shape
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_from
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.simulate import simulate
from shardwise.step.simulate.agree import gap_of
from shardwise.work.case import case_of

STACK = stack_of("megatron-core@2021").changed(transfer_overhead_s=0.05)
"""transfers take as long as computing, so that who sends twice decides"""
JOB = Job(seq=2048, global_batch=32)


def model_with(vocab: int) -> Model:
    return model_from_shape("m", 8, 2048, 16, 16, 8192, False, vocab, tied=True)


def transfers(policy: Policy, vocab: int) -> float:
    """pp_comm in messages"""
    found = estimate(
        case_of(model_with(vocab), cluster_from("a100-80gb-sxm", 8 * policy.pp, 8), JOB, STACK),
        Policies.of([policy]),
        every_stage=True,
    )
    return float(found.times.parts["pp_comm"][0] / found.times.transfer_s[0])


@pytest.mark.parametrize(("pp", "vpp", "each"), [(2, 1, 1), (4, 1, 2), (8, 1, 2), (2, 2, 3), (4, 2, 4)])
def test_messages_of_the_slowest_stage(pp: int, vpp: int, each: int) -> None:
    policy = Policy(pp=pp, dp=8, vpp=vpp, schedule="interleaved" if vpp > 1 else "1f1b", overlap_pp=False)
    micro = JOB.global_batch / 8
    assert transfers(policy, vocab=1024) == pytest.approx(each * micro)


def test_a_heavy_head_makes_the_last_stage_the_slowest_though_it_sends_less() -> None:
    policy = Policy(pp=4, dp=8, overlap_pp=False)
    micro = JOB.global_batch / 8
    assert transfers(policy, vocab=1_000_000) == pytest.approx(micro)


@pytest.mark.parametrize("vocab", [1024, 50_257, 1_000_000])
@pytest.mark.parametrize("pp", [2, 4, 8])
def test_the_simulation_finds_the_same_step(pp: int, vocab: int) -> None:
    """With many micro-batches and transfers shorter than a stage: else messages wait in time that is idle anyway."""
    model, cluster = model_with(vocab), cluster_from("a100-80gb-sxm", 8 * pp, 8)
    job, stack = replace(JOB, global_batch=1024), STACK.changed(transfer_overhead_s=5e-4)
    simulation = simulate(case_of(model, cluster, job, stack), Policy(pp=pp, dp=8, overlap_pp=False))
    assert abs(gap_of(simulation).share) < 0.01


@pytest.mark.parametrize(
    ("policy", "batch", "nic"),
    [
        (Policy(pp=12, tp=2, overlap_pp=True), 16, 1.25e9), (Policy(pp=6, tp=4, overlap_pp=True), 16, 1.6e8),
        (Policy(pp=6, tp=4, overlap_pp=True, recompute="full"), 64, 1.6e8),
        (Policy(pp=6, dp=4, overlap_pp=False, offload="activations"), 16, 5e10),
    ],
)  # fmt: skip
def test_stages_that_differ_wait_for_each_other_as_in_the_simulation(policy: Policy, batch: int, nic: float) -> None:
    """Of 20 layers on 12 or 6 stages, where messages or copies to the host take long."""
    model = model_from_shape("m", 20, 2048, 16, 16, 8192, False, 1024, tied=True)
    cluster = cluster_from("a100-80gb-sxm", 24, 8)
    levels = [replace(each, bandwidth=nic) if each.kind == "network" else each for each in cluster.levels]
    case = case_of(model, replace(cluster, levels=tuple(levels)), replace(JOB, global_batch=batch), stack_of("generic"))
    assert abs(gap_of(simulate(case, policy)).share) < 0.01


@pytest.mark.parametrize("clock", [1.1, 1.5, 2.0, 4.0])
def test_a_higher_clock_leaves_no_more_to_wait_for(clock: float) -> None:
    """Gathers of ZeRO 3 and reductions between its groups hide under the same passes, on other links."""
    model, cluster = model_with(50_257), cluster_from("a100-80gb-sxm", 64, 8)
    gpu, policy = cluster.gpu, Policies.of([Policy(dp=64, zero=3, shard_group=n) for n in (2, 8, 16)])
    rates = {name: rate * clock for name, rate in gpu.peak_flops.items()}
    faster = replace(cluster, gpu=replace(gpu, peak_flops=rates, boost_clock_hz=gpu.boost_clock_hz * clock))
    job, stack = replace(JOB, global_batch=64), stack_of("torch-fsdp2@kempnerforge")
    before, after = (estimate(case_of(model, its, job, stack), policy).times.step_s for its in (cluster, faster))
    assert (after <= before * (1 + 1e-9)).all()
