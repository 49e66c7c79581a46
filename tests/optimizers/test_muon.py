"""Muon's work and messages: counted in torch, computed by hand, and orthogonal indeed."""

import pytest
from msgspec.structs import replace

from shardwise.cost.gpu import curve_of, gemm_seconds, memory_seconds
from shardwise.fabric.calls import calls_of
from shardwise.plan import Limits, scan
from shardwise.plugins.optimizers import update_rule
from shardwise.question.studies.build import report_of
from shardwise.spec.arch import model_from_shape, model_of
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.job import Job, optimizer_of
from shardwise.spec.load import cluster_of, gpu_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate, machine_for
from shardwise.step.estimate.memory import memory_of
from shardwise.step.estimate.once import optimizer_seconds
from shardwise.work import work_of
from shardwise.work.case import case_of, training_of

LLAMA, EXPERTS = model_of("llama-3-8b"), model_of("mixtral-8x7b")
SHAPES = 32 * [(4096, 4096)] * 2 + 64 * [(1024, 4096)] + 96 * [(14336, 4096)]
ELEMENTS = sum(rows * columns for rows, columns in SHAPES)
JOB = Job(seq=1024, global_batch=64)
H100 = curve_of(gpu_of("h100"))
PRODUCTS = sum(
    # what is added to is copied first
    p.times * (float(gemm_seconds(H100, p.m, p.n, p.k)) + p.adds * float(memory_seconds(H100, 4.0 * p.m * p.n)))
    for shape in SHAPES
    for p in update_rule("muon").products(*shape)
)


def case(optimizer="muon", model=LLAMA, gpus=8):
    job = replace(JOB, optimizer=optimizer_of(optimizer))
    return case_of(model, cluster_of(f"dgx-h100:{gpus}"), job, stack_of("megatron-core"))


def step(policy, optimizer="muon", model=LLAMA):
    return estimate(case(optimizer, model, policy.gpus), Policies.of([policy]), every_stage=True)


def part(name, policy, optimizer="muon"):
    return float(step(policy, optimizer).times.parts[name][0])


def gathered(policy, model=LLAMA):
    """Bytes that a GPU of the one stage takes part in gathering, by axis, times their share that it receives."""
    found = {}
    for call in calls_of(step(policy, model=model).work):
        if call.phase == "update":
            assert call.op == "all_gather"
            received = call.bytes * call.count * (call.ranks - 1) / call.ranks
            found[call.axis] = found.get(call.axis, 0.0) + received
    return found


@pytest.mark.parametrize(("rows", "columns"), [(48, 48), (32, 80), (96, 40)])
def test_flops_as_torch_counts_them(rows, columns):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    weight = torch.nn.Parameter(torch.randn(rows, columns))
    weight.grad = torch.randn_like(weight)
    with FlopCounterMode(display=False) as counter:
        torch.optim.Muon([weight]).step()
    m, n = min(rows, columns), max(rows, columns)
    ours = sum(2 * p.m * p.n * p.k * p.times for p in update_rule("muon").products(rows, columns))
    assert ours == counter.get_total_flops() == 5 * (4 * m * m * n + 2 * m**3)


def test_products_are_priced_as_any_other():
    """The rest of the update is memory traffic: 54 bytes a matrix' element less the momentum and weight of AdamW."""
    whole = part("optimizer", Policy(dp=8, zero=0))
    memory = part("optimizer", Policy(dp=8, zero=0), "adamw")
    assert PRODUCTS < whole < PRODUCTS + 2.5 * memory
    assert whole > PRODUCTS + memory
    owned, shard = (part("optimizer", Policy(dp=8, zero=1), name) for name in ("muon", "adamw"))
    assert owned - shard == pytest.approx((whole - memory) / 8, rel=0.01)


def test_gathered_matrices_are_computed_by_every_rank():
    for policy in (Policy(dp=8, zero=2), Policy(dp=8, zero=3), Policy(dp=4, tp=2, zero=2)):
        assert part("optimizer", policy) == pytest.approx(PRODUCTS, rel=0.06)
        assert part("optimizer", policy) > PRODUCTS


def test_an_owner_computes_at_least_one_matrix():
    largest = sum(
        p.times * float(gemm_seconds(curve_of(gpu_of("h100")), p.m, p.n, p.k))
        for p in update_rule("muon").products(14336, 4096)
    )
    assert part("optimizer", Policy(dp=64, zero=1)) > 1.5 * largest
    few = step(Policy(dp=8, zero=1), model=replace(LLAMA, pattern=LLAMA.pattern[:1]))
    assert float(few.times.parts["optimizer"][0]) > largest


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(dp=8, zero=0), {}),
        (Policy(dp=8, zero=1), {}),
        (Policy(dp=8, zero=2), {"dp": 2 * ELEMENTS * 7 / 8}),
        (Policy(dp=8, zero=3), {"dp": 2 * ELEMENTS * 7 / 8}),
        (Policy(dp=8, zero=3, shard_group=4), {"dp": 2 * ELEMENTS * 3 / 4}),
        (Policy(dp=1, tp=8, zero=0), {"tp": 2 * ELEMENTS * 7 / 8}),
        # owners gather theirs only
        (Policy(dp=4, tp=2, zero=1), {"tp": 2 * ELEMENTS / 4 / 2}),
        (Policy(dp=4, tp=2, zero=3), {"dp": 2 * ELEMENTS / 2 * 3 / 4, "tp": 2 * ELEMENTS / 2}),
    ],
    ids=str,
)
def test_messages(policy, expected):
    assert gathered(policy) == pytest.approx(expected, rel=1e-9)


def test_messages_are_in_the_traffic_and_take_time():
    policy = Policy(dp=8, zero=3)
    muon, adamw = (report_of(case(name), policy) for name in ("muon", "adamw"))
    more = muon.traffic_bytes["dp"]["node"] - adamw.traffic_bytes["dp"]["node"]
    assert more == pytest.approx(2 * ELEMENTS * 7 / 8, rel=1e-6)
    assert muon.time_s["grad_comm"] > adamw.time_s["grad_comm"] + more / 450e9
    assert any("Newton-Schulz" in line and "owner" in line for line in muon.assumptions)
    assert not any("Newton-Schulz" in line for line in adamw.assumptions)


def test_whole_experts_stay_where_they_are():
    """Two experts on a rank, sharded over two: each has one whole. Over four, none has."""
    dense = 2 * 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 8 * 4096)
    experts = 2 * 32 * 2 * 3 * 4096 * 14336
    few, many = (gathered(Policy(dp=dp, ep=4, zero=3), EXPERTS) for dp in (8, 16))
    assert few == pytest.approx({"dp": dense * 7 / 8})
    assert many == pytest.approx({"dp": dense * 15 / 16 + experts * 3 / 4})


def test_newton_schulz_is_orthogonal():
    """The polynomial's limits for what starts above 0.1 % of the norm: singular values between 0.65 and 1.25."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    grad = torch.randn(64, 96)
    update = update_rule("muon").direction(grad, {}, 1, None).float()
    u, _, v = torch.linalg.svd(grad, full_matrices=False)
    sizes = torch.linalg.svdvals(update)
    assert 0.65 < float(sizes.min()) <= float(sizes.max()) < 1.25
    assert float((update * (u @ v)).sum() / update.norm() / (u @ v).norm()) > 0.97


def test_an_update_by_hand():
    """14 bytes of gradient and weights, twice the state, 34 bytes more for a matrix' element; then the GEMMs."""
    policies, mine = Policies.of([Policy(dp=8, zero=0)]), case()
    found, every = estimate(mine, policies, every_stage=True), parameters(LLAMA)
    moved = 14 * every + 2 * (4 * ELEMENTS + 8 * (every - ELEMENTS)) + 34 * ELEMENTS
    passes = float(memory_seconds(mine.curve, moved * mine.stack.kernels.optimizer_passes, "optimizer"))
    seconds = float(optimizer_seconds(found.work, machine_for(mine, policies), mine.cluster)[0])
    assert seconds == pytest.approx(passes + PRODUCTS, rel=1e-9)


def test_the_host_launches_every_kernel():
    """On a host so slow that nothing else counts: 33 kernels a matrix beside those of an element-wise update."""
    policy, slow = Policy(dp=8, zero=0), 0.1
    muon, adamw = (
        float(estimate(case(name).changed(host_s_per_op=slow), Policies.of([policy])).times.parts["optimizer"][0])
        for name in ("muon", "adamw")
    )
    assert muon - adamw == pytest.approx(33 * len(SHAPES) * slow)


def test_a_matrix_is_held_twice_with_its_squares():
    """In 16 bits, when activations are gone: of a model with hardly any it is the fullest moment."""
    model = model_from_shape("short", 2, 4096, 32, 8, 14336, True, 128, tied=False)
    scratch = 2 * (2 * 4096 * 14336 + 2 * 4096 * 4096)
    muon, adamw = (
        float(
            memory_of(
                work_of(training_of(model, Job(seq=8, global_batch=8, optimizer=optimizer_of(name)), case().stack),
                        Policies.of([Policy(dp=8, zero=1)]), every_stage=True)
            ).kinds["working"].max()
        )
        for name in ("muon", "adamw")
    )  # fmt: skip
    assert 0.9 * scratch < muon - adamw <= scratch


def test_a_scan_with_bounds_finds_the_same():
    limits = Limits(micro_batch=2, vpp=1, orders=("tp-cp-dp-pp",))
    quick, slow = (scan(case(), limits=limits, losers=False, top=5, bounded=bounded).best for bounded in (True, False))
    assert len(quick) == 5
    assert [found.policy for found in quick] == [found.policy for found in slow]
