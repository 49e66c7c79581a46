"""Laws that hold for every model, cluster and legal policy."""

from dataclasses import fields
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shardwise.cost.gpu import curve_of, memory_seconds
from shardwise.cost.network import network_of
from shardwise.plugins.pipeline import schedule_names
from shardwise.spec.arch import model_of
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.policy import ATTENTION, RECOMPUTE, Policies, Policy
from shardwise.spec.rules import divisors, legal
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.step.estimate.memory import memory_of
from shardwise.work import Work, work_of
from shardwise.work.case import case_of, training_of
from shardwise.work.ops import LayerWork
from shardwise.work.parameters import stage_parameters

MODELS = ("gpt2-xl", "llama-3-8b", "qwen3-8b", "mixtral-8x7b", "deepseek-v2-lite", "gemma-2-9b")
CLUSTERS = ("dgx-h100:8", "dgx-h100:64", "dgx-a100:48")
STACK = stack_of("megatron-core")
JOB = Job(seq=2048, global_batch=96)
QUICK = settings(max_examples=40, deadline=None, derandomize=True)

models = st.sampled_from(MODELS)
clusters = st.sampled_from(CLUSTERS)


@cache
def grid(cluster: str) -> Policies:
    """Columns of every combination, legal or not, of the degrees that divide the cluster."""
    gpus = cluster_of(cluster).gpus
    some = [d for d in divisors(gpus) if d <= 16]
    rows = np.array(list(product(some, some, (1, 2, 4), (1, 2, 8), (1, 2), (0, 1), (1, 2))), dtype=np.int64)
    tp, pp, cp, ep, vpp, sp, micro = rows.T
    numbers, code = np.arange(len(rows)), schedule_names().index
    return Policies.columns(
        len(rows), tp=tp, pp=pp, cp=cp, ep=ep, vpp=vpp, sp=sp, micro_batch=micro,
        dp=np.maximum(gpus // (tp * pp * cp), 1),
        schedule=np.where(vpp > 1, code("interleaved"), np.where(numbers % 3, 0, code("gpipe"))),
        zero=numbers % 4, recompute=numbers % len(RECOMPUTE), attention=numbers // 5 % len(ATTENTION),
    )  # fmt: skip


@cache
def allowed(model: str, cluster: str) -> Policies:
    columns = grid(cluster)
    return columns.take(np.flatnonzero(legal(model_of(model), cluster_of(cluster), JOB, columns)))


@st.composite
def cases(draw) -> tuple[Model, Cluster, Policies]:
    """A model, a cluster and up to six of their legal policies."""
    model, cluster = draw(models), draw(clusters)
    columns = allowed(model, cluster)
    chosen = draw(st.lists(st.integers(0, len(columns) - 1), min_size=1, max_size=6))
    return model_of(model), cluster_of(cluster), columns.take(np.array(chosen))


def work(model: Model, policy: Policy, job: Job = JOB) -> Work:
    return work_of(training_of(model, job, STACK), Policies.of([policy]), every_stage=True)


def states(model: Model, policy: Policy) -> float:
    """Weights, gradients and optimizer of the fullest stage."""
    kinds = memory_of(work(model, policy)).kinds
    return float((kinds["parameters"] + kinds["gradients"] + kinds["optimizer"]).max())


def activations(model: Model, policy: Policy) -> float:
    return float(memory_of(work(model, policy)).kinds["activations"].max())


@QUICK
@given(models, clusters)
def test_degrees_of_legal_policies_multiply_to_the_world(model: str, cluster: str) -> None:
    columns, gpus = allowed(model, cluster), cluster_of(cluster).gpus
    assert len(columns)
    assert (columns.dp * columns.tp * columns.pp * columns.cp == gpus).all()
    assert (columns.dp * columns.micro_batch <= JOB.global_batch).all()
    for index in (0, len(columns) // 2, len(columns) - 1):
        assert columns[index].gpus == gpus
    # and nothing that fills the cluster badly gets through
    everything = grid(cluster)
    wrong = everything.dp * everything.tp * everything.pp * everything.cp != gpus
    assert not legal(model_of(model), cluster_of(cluster), JOB, everything)[wrong].any()


@QUICK
@given(
    models,
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([0, 1]),
)
def test_ranks_hold_every_parameter(name: str, tp: int, pp: int, ep: int, etp: int) -> None:
    """Summed over stages, tensor- and expert-parallel ranks, less the copies every tp rank holds."""
    model = model_of(name)
    experts = any(kind.experts for kind in model.kinds)
    policy = Policy(tp=tp, pp=pp, dp=4, ep=ep if experts else 1, etp=etp if experts else 0)
    found = work(model, policy)
    dense, expert = stage_parameters(found.counts, found.layout, found.stages)
    counted = found.counts
    kinds = zip(counted.kinds, (model.pattern.count(k) for k in range(len(model.kinds))), strict=True)
    whole = sum(n * c.whole for c, n in kinds) + counted.embedding.whole + counted.head_alone.whole + counted.mtp.whole
    if tp > min((k.attention.kv_heads for k in model.kinds if k.attention and not k.attention.latent), default=tp):
        return  # key/value heads are copied as well
    total = dense.sum() * tp - (tp - 1) * whole + expert.sum() * found.layout.ep[0] * found.layout.etp[0]
    table = model.vocab * model.hidden if model.tied and pp > 1 else 0
    assert total == pytest.approx(parameters(model, mtp=True) + table, rel=1e-12)
    assert found.stages.layers.sum() == model.layers


@QUICK
@given(cases())
def test_states_fall_with_sharding(case: tuple[Model, Cluster, Policies]) -> None:
    model, _, columns = case
    for index in range(len(columns)):
        policy = replace(columns[index], shard_group=0)
        held = states(model, policy)
        for stage in range(policy.zero, 4):
            more = states(model, replace(policy, zero=stage))
            assert more <= held * (1 + 1e-12)
            held = more
        for axis in ("tp", "dp", "pp"):
            wider = replace(policy, **{axis: 2 * getattr(policy, axis), "etp": 0})
            assert states(model, wider) <= states(model, policy) * (1 + 1e-12)
        strictly = replace(policy, zero=1, dp=policy.dp * 2)
        assert states(model, strictly) < states(model, replace(policy, zero=1))


@QUICK
@given(cases())
def test_activations_fall_with_splitting_and_recompute(case: tuple[Model, Cluster, Policies]) -> None:
    model, _, columns = case
    for index in range(len(columns)):
        policy = replace(columns[index], recompute="none")
        none = activations(model, policy)
        assert activations(model, replace(policy, recompute="selective")) <= none
        assert activations(model, replace(policy, recompute="full")) <= none * (1 + 1e-12)
        assert activations(model, replace(policy, tp=2 * policy.tp)) <= none * (1 + 1e-12)
        assert activations(model, replace(policy, cp=2 * policy.cp)) < none
        sharded = replace(policy, sp=True, tp=2)
        assert activations(model, sharded) < activations(model, replace(sharded, sp=False))


def _amounts(layer: LayerWork) -> list[float]:
    """Everything in a layer that must grow with the tokens."""
    found = [2.0 * g.m * g.n * g.k * g.batch for g in layer.gemms]
    found += [x.bytes for x in layer.saved]
    found += [x.forward_bytes for x in layer.pointwise] + [x.backward_bytes for x in layer.pointwise]
    found += [x.bytes * x.count for x in layer.collectives]
    found += [layer.working_bytes]
    if layer.attention is not None:
        found += [layer.attention.forward_flops(), layer.attention.square_flops()]
    return [float(np.asarray(x).reshape(-1)[0]) for x in found]


@QUICK
@given(cases(), st.sampled_from([2, 3, 4]))
def test_work_is_linear_in_the_micro_batch(case: tuple[Model, Cluster, Policies], times: int) -> None:
    model, _, columns = case
    policy = columns[0]
    one = work(model, policy)
    many = work(model, replace(policy, micro_batch=times * policy.micro_batch))
    for a, b in zip((*one.kinds, one.embedding, one.head), (*many.kinds, many.embedding, many.head), strict=True):
        assert [times * x for x in _amounts(a)] == pytest.approx(_amounts(b), rel=1e-12)


@QUICK
@given(cases(), st.sampled_from([2, 4]))
def test_saved_bytes_follow_the_precision(case: tuple[Model, Cluster, Policies], batch: int) -> None:
    """fp32 keeps every tensor of model values at twice the width of bf16."""
    model, _, columns = case
    policy = replace(columns[0], micro_batch=batch)
    narrow, wide = (work(model, policy, replace(JOB, precision=PRECISIONS[p])) for p in ("bf16", "fp32"))
    alike = ("log-sum-exp", "dropout mask", "attention dropout", "router scores")
    for a, b in zip(narrow.kinds, wide.kinds, strict=True):
        for x, y in zip(a.saved, b.saved, strict=True):
            if x.name not in alike:
                assert np.asarray(y.bytes) == pytest.approx(2 * np.asarray(x.bytes))


def _answers(found: Estimate) -> dict[str, np.ndarray]:
    answers = {"step": found.times.step_s, "peak": found.memory.peak, "fits": found.fits.astype(float)}
    answers |= {f"time {k}": v for k, v in found.times.parts.items()}
    return answers | {f"memory {k}": v.max(axis=1) for k, v in found.memory.kinds.items()}


def _asked(model: Model, cluster: Cluster, columns: Policies) -> dict[str, np.ndarray]:
    return _answers(estimate(case_of(model, cluster, JOB, STACK), columns))


@QUICK
@given(cases())
def test_many_policies_are_each_on_its_own(case: tuple[Model, Cluster, Policies]) -> None:
    model, cluster, columns = case
    together = _asked(model, cluster, columns)
    for index in range(len(columns)):
        alone = _asked(model, cluster, Policies.of([columns[index]]))
        for name, value in alone.items():
            assert together[name][index] == pytest.approx(value[0], rel=1e-12), name


@QUICK
@given(cases(), st.randoms(use_true_random=False))
def test_order_does_not_matter(case: tuple[Model, Cluster, Policies], random) -> None:
    model, cluster, columns = case
    order = list(range(len(columns)))
    random.shuffle(order)
    straight, shuffled = _asked(model, cluster, columns), _asked(model, cluster, columns.take(np.array(order)))
    for name, value in straight.items():
        assert shuffled[name].tolist() == value[order].tolist(), name


@QUICK
@given(cases())
def test_parts_add_up_and_are_never_negative(case: tuple[Model, Cluster, Policies]) -> None:
    model, cluster, columns = case
    found = estimate(case_of(model, cluster, JOB, STACK), columns)
    assert sum(found.times.parts.values()) == pytest.approx(found.times.step_s, rel=1e-9)
    for part in (*found.times.parts.values(), *found.times.hidden.values(), *found.memory.kinds.values()):
        assert (part >= 0).all()
        assert np.isfinite(part).all()


OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")


@QUICK
@given(
    clusters,
    st.sampled_from(OPS),
    st.sampled_from([2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.floats(1, 1e10),
    st.floats(1, 1e4),
)
def test_more_bytes_never_take_less_time(
    cluster: str, op: str, size: int, stride: int, bytes_: float, more: float
) -> None:
    chosen = cluster_of(cluster)
    network, curve = network_of(chosen), curve_of(chosen.gpu)
    if size * stride <= chosen.gpus:
        few, many = (float(network.seconds(op, b, size, stride)) for b in (bytes_, bytes_ * more))
        assert 0 < few <= many
    few, many = (float(memory_seconds(curve, np.float64(b))) for b in (bytes_, bytes_ * more))
    assert few <= many


def test_columns_survive_the_round_trip() -> None:
    columns = allowed("mixtral-8x7b", "dgx-h100:8")
    again = Policies.of([columns[i] for i in range(len(columns))])
    for field in fields(Policies):
        assert (getattr(again, field.name) == getattr(columns, field.name)).all()


@pytest.mark.parametrize(
    ("pp", "vpp", "layers"),
    [(16, 1, [4] * 15 + [1]), (8, 1, [8] * 7 + [5]), (2, 8, [32, 29]), (4, 3, [15, 16, 15, 15])],
)
def test_extra_prediction_layers_take_from_the_last_stage(pp: int, vpp: int, layers: list[int]) -> None:
    """As DeepSeek-V3's 61 layers are laid out; where the last stage would end up with nothing, as without them."""
    policy = Policy(pp=pp, vpp=vpp, dp=64, schedule="interleaved" if vpp > 1 else "1f1b")
    found = work(model_of("deepseek-v3"), policy)
    assert found.stages.layers[0].tolist() == layers


def test_a_program_without_extra_prediction_layers_trains_the_model_without_them() -> None:
    model, policies = model_of("deepseek-v3"), Policies.of([Policy(pp=16, dp=64, ep=64)])
    cluster, job = cluster_of("dgx-h100:1024"), Job(seq=4096, global_batch=1024)
    plain = STACK.changed(predicts_further=False)
    found, alike, with_them = (
        estimate(case_of(shape, cluster, job, stack), policies)
        for shape, stack in ((model, plain), (replace(model, mtp_layers=0), STACK), (model, STACK))
    )
    assert found.times.step_s[0] == alike.times.step_s[0] < with_them.times.step_s[0]
    assert found.memory.peak[0] == alike.memory.peak[0]
    assert plain.trained(model_of("llama-3-8b")) is model_of("llama-3-8b")
