"""Where whole matrices are updated: messages, work and state of each layout by hand, and what a plan takes."""

from math import prod

import pytest
from msgspec.structs import replace

from shardwise.cost.gpu import curve_of, gemm_seconds, memory_seconds
from shardwise.fabric.calls import calls_of
from shardwise.plan import Limits, scan
from shardwise.plan.constraints import constraints_of
from shardwise.plugins.optimizers import optimizer_names, update_rule
from shardwise.spec.arch import model_of
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.job import Job, optimizer_of
from shardwise.spec.load import cluster_of, gpu_of
from shardwise.spec.policy import MATRIX_LAYOUT, Policies, Policy
from shardwise.spec.rules import verdict_of
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate, machine_for
from shardwise.step.estimate.memory import memory_of
from shardwise.step.estimate.once import matrix_seconds, optimizer_seconds
from shardwise.work.case import case_of

LLAMA, EXPERTS = model_of("llama-3-8b"), model_of("mixtral-8x7b")
SHAPES = 32 * [(4096, 4096)] * 2 + 64 * [(1024, 4096)] + 96 * [(14336, 4096)]
ELEMENTS = sum(map(prod, SHAPES))
JOB = Job(seq=1024, global_batch=64)
H100 = curve_of(gpu_of("h100"))


def case(optimizer="muon", gpus=8, model=LLAMA, stack="megatron-core"):
    job = replace(JOB, optimizer=optimizer_of(optimizer))
    return case_of(model, cluster_of(f"dgx-h100:{gpus}"), job, stack_of(stack))


def step(policy, optimizer="muon", model=LLAMA):
    return estimate(case(optimizer, policy.gpus, model), Policies.of([policy]), every_stage=True)


def newton_schulz(rows, columns):
    m, n = min(rows, columns), max(rows, columns)
    shapes = ((m, m, n), (m, m, m), (m, n, m))
    # torch copies what the last two are added to, in 16 bits
    copies = sum(float(memory_seconds(H100, 4.0 * elements)) for elements in (m * m, m * n))
    return 5 * (sum(float(gemm_seconds(H100, *shape)) for shape in shapes) + copies)


WHOLE = sum(newton_schulz(*shape) for shape in SHAPES)
UPDATE_MESSAGES = [
    (Policy(dp=8, zero=1, matrix_layout="owned"), {}),
    (Policy(dp=8, zero=3, matrix_layout="owned"), {}),
    (Policy(dp=8, zero=1, matrix_layout="gather"), {("dp", "all_gather"): 2 * ELEMENTS}),
    (Policy(dp=8, zero=2, matrix_layout="gather"), {("dp", "all_gather"): 2 * ELEMENTS}),
    # an eighth of every matrix leaves and comes back
    (Policy(dp=8, zero=3, matrix_layout="all-to-all"), {("dp", "all_to_all"): 2 * 2 * ELEMENTS / 8}),
    (Policy(dp=8, zero=3, shard_group=4, matrix_layout="all-to-all"), {("dp", "all_to_all"): 2 * 2 * ELEMENTS / 4}),
    (
        Policy(dp=4, tp=2, zero=2, matrix_layout="all-to-all"),
        {("dp", "all_to_all"): 2 * 2 * ELEMENTS / 2 / 4, ("tp", "all_gather"): 2 * ELEMENTS / 4},
    ),
    (Policy(dp=4, tp=2, zero=1, matrix_layout="blockwise"), {}),
    (Policy(tp=8, zero=0, matrix_layout="blockwise"), {}),
    (Policy(dp=4, tp=2, zero=3, matrix_layout="blockwise"), {("dp", "all_gather"): 2 * ELEMENTS / 2}),
]


@pytest.mark.parametrize(("policy", "expected"), UPDATE_MESSAGES, ids=str)
def test_bytes_of_messages(policy, expected):
    sent = {}
    for call in calls_of(step(policy).work):
        if call.phase == "update":
            sent[call.axis, call.op] = sent.get((call.axis, call.op), 0.0) + call.bytes * call.count
    assert sent == pytest.approx(expected, rel=1e-9)


def test_whole_experts_are_not_sent():
    """Two experts on a rank, sharded over two ranks: each has one whole; over four they go to owners in pieces."""
    dense = 2 * 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 8 * 4096)
    experts = 2 * 32 * 2 * 3 * 4096 * 14336
    for dp, expected in ((8, 2 * dense / 8), (16, 2 * dense / 16 + 2 * experts / 4)):
        policy = Policy(dp=dp, ep=4, zero=3, matrix_layout="all-to-all")
        calls = [c for c in calls_of(step(policy, model=EXPERTS).work) if c.phase == "update"]
        assert {c.op for c in calls} == {"all_to_all"}
        assert sum(c.bytes * c.count for c in calls) == pytest.approx(expected)


def seconds(part, policy, optimizer="muon"):
    return float(step(policy, optimizer).times.parts[part][0])


def test_work_by_layout():
    """All matrices, an eighth of them, or pieces of half their rows or columns."""
    gather, owned, sent = (
        seconds("optimizer", Policy(dp=8, zero=2, matrix_layout=layout)) for layout in ("gather", "owned", "all-to-all")
    )
    assert WHOLE < gather < 1.06 * WHOLE
    assert gather - owned == pytest.approx(WHOLE * 7 / 8, rel=1e-6)
    assert sent == pytest.approx(owned, rel=1e-9)
    halves = [(2048, 4096), (4096, 2048), (512, 4096), (512, 4096), (7168, 4096), (7168, 4096), (4096, 7168)]
    pieces = 32 * sum(newton_schulz(*shape) for shape in halves)
    whole, cut = (seconds("optimizer", Policy(tp=2, zero=0, matrix_layout=layout)) for layout in ("", "blockwise"))
    assert whole - cut == pytest.approx(WHOLE - pieces, rel=1e-6)


def test_rounds_hide_under_the_products_of_the_last():
    """28 rounds of 8 matrices: at least one of them in the open, and with products this long no more."""
    policy = Policy(dp=8, zero=1)
    owned, gather, sent = (
        seconds("grad_comm", replace(policy, matrix_layout=layout)) for layout in ("owned", "gather", "all-to-all")
    )
    assert owned < sent < gather
    # in each direction seven eighths of a rank's pieces cross 450 GB/s
    assert sent - owned < 0.2 * (2 * 2 * ELEMENTS / 8 * 7 / 8 / 450e9)


@pytest.mark.parametrize(
    ("layout", "elements"),
    [
        # 224 matrices on 512 ranks: an owner has at most one, of the largest shape
        ("owned", 14336 * 4096),
        ("gather", ELEMENTS / 512),
        ("all-to-all", ELEMENTS / 512),
    ],
)
def test_state_by_layout(layout, elements):
    rest = (parameters(LLAMA) - ELEMENTS) / 512
    held = memory_of(step(Policy(dp=512, zero=1, matrix_layout=layout)).work).kinds["optimizer"]
    # master and momentum; master and two moments of what AdamW trains
    assert float(held.max()) == pytest.approx(8 * elements + 12 * rest, rel=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "policy", "rule"),
    [
        ("adamw", Policy(dp=8, zero=1, matrix_layout="owned"), "matrix layout"),
        ("soap", Policy(dp=4, tp=2, zero=1, matrix_layout="blockwise"), "matrix layout"),
        ("muon", Policy(dp=8, zero=0, matrix_layout="owned"), "shared matrices"),
        ("muon", Policy(tp=8, zero=1, matrix_layout="all-to-all"), "shared matrices"),
        ("muon", Policy(dp=8, zero=1, matrix_layout="blockwise"), "shared matrices"),
    ],
)
def test_refused(optimizer, policy, rule):
    mine = case(optimizer)
    verdict = verdict_of(LLAMA, mine.cluster, mine.job, policy)
    assert (verdict.legal, verdict.rule) == (False, rule)
    assert policy.matrix_layout in verdict.why
    assert verdict.cure is not None
    assert verdict_of(LLAMA, mine.cluster, mine.job, verdict.cure).legal


def policies_of(stack, *bounds, optimizer="muon"):
    limits = Limits(micro_batch=1, vpp=1, orders=("tp-cp-dp-pp",), some_layers=False)
    every = scan(case(optimizer, stack=stack), limits=limits, losers=False, top=400, only=constraints_of(bounds))
    return [each.policy for each in every.best]


def test_a_search_compares_layouts_that_train_alike():
    found = policies_of("generic", "zero=3", "tp=1", "pp=1", "cp=1")
    assert {policy.matrix_layout for policy in found} == {"gather", "owned", "all-to-all"}
    assert found[0].matrix_layout in ("owned", "all-to-all")
    assert {p.matrix_layout for p in policies_of("generic", "zero=0", "pp=1")} == {""}
    assert {p.matrix_layout for p in policies_of("generic", "matrix_layout=blockwise")} == {"blockwise"}
    assert {p.matrix_layout for p in policies_of("generic", optimizer="adamw")} == {""}


def test_a_program_has_its_own_layouts():
    """Megatron-Core: owners under ZeRO 1, no FSDP; torchtitan: DistMuon's all-to-all, or a gather."""
    megatron, titan = (policies_of(stack, "tp=1", "pp=1", "cp=1") for stack in ("megatron-core", "torchtitan"))
    assert {(p.zero, p.matrix_layout) for p in megatron} <= {(0, ""), (1, "owned")}
    assert {p.matrix_layout for p in titan if p.zero} == {"gather", "all-to-all"}


def test_layouts_are_named_where_policies_are():
    known = {layout for name in optimizer_names() for layout in update_rule(name).layouts}
    assert known == set(MATRIX_LAYOUT) - {""}


@pytest.mark.parametrize("optimizer", ["soap", "shampoo"])
def test_flops_of_factored_optimizers(optimizer):
    """SOAP: two projections and one factor a side, bases every tenth step; Shampoo, in one block: two factors and two
    roots, eigenvectors every hundredth step."""
    rows, columns = 640, 960
    rule = update_rule(optimizer)
    gemms = sum(2 * p.m * p.n * p.k * p.times for p in rule.products(rows, columns))
    others = sum({"qr": 8 / 3, "eigh": 9.0}[f.kind] * f.side**3 * f.times for f in rule.factorings(rows, columns))
    sides = ((rows, columns), (columns, rows))
    if optimizer == "soap":
        assert gemms == pytest.approx(sum(6 * d * d * o + (4 * d * d * o + 6 * d**3) / 10 for d, o in sides))
        assert others == pytest.approx(sum(8 / 3 * d**3 / 10 for d, _ in sides))
    else:
        assert gemms == pytest.approx(sum(4 * d * d * o + 2 * d**3 / 100 for d, o in sides))
        assert others == pytest.approx(sum(9 * d**3 / 100 for d, _ in sides))


def test_long_sides_and_blocks():
    soap, shampoo = update_rule("soap"), update_rule("shampoo")
    # two moments; factor and basis of the short side only
    assert soap.factor_bytes(14336, 4096, 4) == 4 * (2 * 14336 * 4096 + 2 * 4096**2)
    assert soap.products(20000, 20000) == [] == list(soap.factorings(20000, 20000))
    # 1,536 x 1,024: a whole block and one of half the rows
    assert shampoo.factor_bytes(1536, 1024, 4) == 4 * 2 * (1536 * 1024 + 1024**2 + 1024**2 + 512**2 + 1024**2)
    assert sum(f.times for f in shampoo.factorings(1536, 1024)) == pytest.approx(4 / 100)


@pytest.mark.parametrize("optimizer", ["soap", "shampoo"])
def test_owners_compute_factored_updates(optimizer):
    every = sum(matrix_seconds(update_rule(optimizer), *shape, H100) for shape in SHAPES)
    factors = 4 * sum(update_rule(optimizer).factor_bytes(*shape, 1) for shape in SHAPES)
    moved = 30 * parameters(LLAMA) - 16 * ELEMENTS + 2 * factors + 56 * ELEMENTS
    mine = case(optimizer)
    passes = float(memory_seconds(mine.curve, moved * mine.stack.kernels.optimizer_passes, "optimizer"))
    for policy, ranks in ((Policy(dp=8, zero=0), 1), (Policy(dp=8, zero=1), 8), (Policy(dp=8, zero=3), 8)):
        found, machine = step(policy, optimizer), machine_for(mine, Policies.of([policy]))
        found_s = float(optimizer_seconds(found.work, machine, mine.cluster)[0])
        assert found_s == pytest.approx((every + passes) / ranks, rel=1e-4)


@pytest.mark.parametrize(
    ("optimizer", "moved"),
    [
        # gradient 4, weight 4 twice, narrow copy 2; then state read and written, and passes of their own
        ("adamw", 14 + 16), ("adam", 14 + 16), ("sgd", 14), ("sgd-m", 14 + 8), ("lion", 14 + 8),
        ("adamw-8bit", 14 + 2 * (2 + 8 / 256)),
    ],
)  # fmt: skip
def test_bytes_moved_by_an_element(optimizer, moved):
    rule = update_rule(optimizer)
    assert rule.moved_bytes(JOB.precision) == pytest.approx(moved)
    assert (rule.products(4096, 4096), rule.exchanges) == ((), ("none",) * 4)
    assert rule.factor_bytes(4096, 4096, 4) == 0
    assert list(calls_of(step(Policy(dp=8, zero=1), optimizer).work)) == list(
        calls_of(step(Policy(dp=8, zero=1), "adamw").work)
    )


def test_adafactor_moves_its_passes():
    """56 bytes an element of a matrix beside gradient and weights; row and column means are a thousandth."""
    slow, plain = (seconds("optimizer", Policy(dp=8, zero=0), name) for name in ("adafactor", "sgd"))
    matrices = parameters(LLAMA) - 65 * 4096
    more = 56 * matrices + 2 * 4 * (32 * (2 * 8192 + 2 * 5120 + 3 * 18432) + 2 * (128256 + 4096) + 65 * 4096)
    # what both do besides: sums of gradients are set to zero, 4 bytes an element
    assert (slow - plain) / plain == pytest.approx(more / (18 * parameters(LLAMA)), rel=0.1)
