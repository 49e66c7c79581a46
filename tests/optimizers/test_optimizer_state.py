"""What optimizers keep: figures by hand, the real state of torch's optimizers, and who keeps it."""

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.spec.arch import model_from_shape, model_of
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.job import Job, optimizer_of, precision_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.memory import memory_of
from shardwise.step.estimate.state import saved_state, state_of
from shardwise.work import work_of
from shardwise.work.case import training_of

LLAMA = model_of("llama-3-8b")
MATRICES = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
TABLES, NORMS = 2 * 128256 * 4096, 65 * 4096
ALL = 8_030_261_248
STACK = stack_of("megatron-core")
# torch keeps experts in one tensor of three dimensions, Megatron each by itself: sums of rows and columns are the same
MODELS = {
    "llama": model_from_shape("small", 2, 64, 4, 2, 160, True, 96, tied=False),
    "tied gpt": model_from_shape("gpt", 2, 64, 4, 4, 256, False, 96, tied=True, positions=32),
    "moe": model_from_shape("moe", 2, 64, 4, 2, 160, True, 96, tied=False, experts=4, top_k=2, expert_ffn=48),
}


def work(optimizer, policy, model=LLAMA, precision="bf16"):
    job = Job(seq=1024, global_batch=512, optimizer=optimizer_of(optimizer), precision=precision_of(precision))
    return work_of(training_of(model, job, STACK), Policies.of([policy]), every_stage=True)


def held(optimizer, policy, model=LLAMA, precision="bf16"):
    return float(memory_of(work(optimizer, policy, model, precision)).kinds["optimizer"].max())


@pytest.mark.parametrize(
    ("optimizer", "kept"),
    [
        ("adamw", 8 * ALL),
        ("adam", 8 * ALL),
        ("adamw-8bit", 2 * ALL + 2 * 4 * ALL / 256),
        ("sgd-m", 4 * ALL),
        ("sgd", 0),
        ("lion", 4 * ALL),
        # one fp32 number for every row and column of every matrix, all of a norm
        ("adafactor", 4 * (32 * (2 * 8192 + 2 * 5120 + 3 * 18432) + 2 * (128256 + 4096) + NORMS)),
        ("muon", 4 * MATRICES + 8 * (TABLES + NORMS)),
        # a factor and its basis for every side of at most 10,000
        ("soap", 8 * ALL + 4 * 2 * 32 * (2 * 2 * 4096**2 + 2 * (1024**2 + 4096**2) + 3 * 4096**2)),
        # in blocks of 1,024 x 1,024 two factors and two roots: as much again four times
        ("shampoo", 8 * ALL + 4 * 4 * MATRICES),
    ],
)
def test_llama_by_hand(optimizer, kept):
    assert MATRICES + TABLES + NORMS == ALL
    assert held(optimizer, Policy(dp=8, zero=0)) == pytest.approx(4 * ALL + kept, rel=1e-12)
    assert held(optimizer, Policy(dp=8, zero=0), precision="bf16-moments16") == pytest.approx(
        4 * ALL + (kept if optimizer == "adamw-8bit" else kept / 2), rel=1e-12
    )
    job = Job(seq=1, global_batch=1, optimizer=optimizer_of(optimizer))
    assert state_of(LLAMA, job).total == pytest.approx((2 + 4 + 4) * ALL + kept, rel=1e-12)
    assert saved_state(LLAMA, job).total == pytest.approx(4 * ALL + kept, rel=1e-12)


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("optimizer", ["adamw", "lion", "adamw-8bit", "muon", "soap", "shampoo"])
def test_zero_divides_it(optimizer, zero):
    """224 matrices of 32 layers over 8 ranks: as many of each shape for every owner."""
    whole = held(optimizer, Policy(dp=8, zero=0))
    assert held(optimizer, Policy(dp=8, zero=zero)) == pytest.approx(whole / 8, rel=1e-12)


def test_means_of_rows_and_columns_are_on_every_shard():
    means = 4 * (32 * (2 * 8192 + 2 * 5120 + 3 * 18432) + 2 * (128256 + 4096))
    whole, shard = (held("adafactor", Policy(dp=8, zero=zero)) for zero in (0, 1))
    assert shard == pytest.approx((whole - means) / 8 + means, rel=1e-12)


def test_short_tensors_keep_moments_of_32_bits():
    norms = 5 * 64
    model, every = MODELS["llama"], parameters(MODELS["llama"])
    found = held("adamw-8bit", Policy(zero=0), model, "fp32")
    # keys and values have 64 x 32 elements
    short = norms + 2 * 2 * 64 * 32
    assert found == pytest.approx(8 * short + 2 * (1 + 4 / 256) * (every - short))


def test_tensor_parallelism_cuts_both():
    rows = 32 * (3 * 4096 + 2 * 1024 + 2 * 14336 + 4096 / 2 * 2) + 2 * 128256
    # columns of o and down are cut, rows of all others
    cut_rows = 32 * (4096 / 2 + 2 * 1024 / 2 + 4096 + 2 * 14336 / 2 + 4096) + 2 * 128256 / 2
    columns = 32 * (3 * 4096 + 4096 / 2 + 2 * 4096 + 14336 / 2) + 2 * 4096
    found = held("adafactor", Policy(dp=4, tp=2, zero=0)) - held("sgd", Policy(dp=4, tp=2, zero=0))
    assert rows > cut_rows
    assert found == pytest.approx(4 * (cut_rows + columns + NORMS), rel=1e-12)


def test_owners_have_whole_matrices():
    """More ranks than matrices: the fullest owner has the largest one, with its master copy and momentum."""
    ranks, largest = 512, 14336 * 4096
    assert held("muon", Policy(dp=ranks, zero=1)) == pytest.approx(
        8 * largest + 12 * (TABLES + NORMS) / ranks, rel=1e-6
    )
    assert held("muon", Policy(dp=ranks, zero=3)) == pytest.approx((8 * MATRICES + 12 * (TABLES + NORMS)) / ranks)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "bf16-pure"])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd-m", "sgd", "adafactor", "muon"])
def test_as_torch_keeps_it(optimizer, precision, name):
    torch = pytest.importorskip("torch")
    from optimizers.whole import kept_after_a_step, parameters_of

    model, dtype = MODELS[name], torch.float32 if precision == "fp32" else torch.bfloat16
    apart = optimizer == "muon"
    found = parameters_of(model, experts_apart=apart)
    for _, parameter in found:
        parameter.data, parameter.grad = parameter.data.to(dtype), None
        parameter.grad = torch.randn_like(parameter)
    every = [parameter for _, parameter in found]
    matrices = [parameter for kind, parameter in found if kind == "matrix"]
    others = [parameter for kind, parameter in found if kind != "matrix"]
    steps = {
        "adamw": lambda: [torch.optim.AdamW(every)],
        "sgd-m": lambda: [torch.optim.SGD(every, momentum=0.9)],
        "sgd": lambda: [torch.optim.SGD(every)],
        "adafactor": lambda: [torch.optim.Adafactor(every)],
        "muon": lambda: [torch.optim.Muon(matrices), torch.optim.AdamW(others)],
    }
    kept = kept_after_a_step(steps[optimizer]())
    assert sum(p.numel() for p in every) == parameters(model)
    assert held(optimizer, Policy(zero=0), model, precision) == kept


def test_an_expert_is_a_matrix_and_a_bias_is_none():
    model = replace(MODELS["moe"])
    found = work("muon", Policy(dp=4, ep=2, zero=0), model).updates
    experts = [each for each in found.matrices if each.expert]
    assert {(each.rows, each.columns) for each in experts} == {(48.0, 64.0), (64.0, 48.0)}
    assert {float(each.number.max()) for each in experts} == {2 * 4 / 2}
    assert np.allclose(found.covered, sum(each.held for each in found.matrices))
