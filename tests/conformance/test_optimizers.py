"""Every optimizer in the folder: its names, and laws of its state, work and messages."""

import pickle

import numpy as np
import pytest

from shardwise.plugins.optimizers import KINDS, TensorPieces, optimizer_names, read_from, spelled_for, update_rule
from shardwise.spec.arch import model_of
from shardwise.spec.job import PRECISIONS, Job, optimizer_of
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

NAMES = optimizer_names()
POLICIES = [Policy(dp=8, zero=zero) for zero in range(4)] + [Policy(dp=2, tp=4, zero=1), Policy(dp=4, pp=2, zero=1)]


@pytest.mark.parametrize("name", NAMES)
def test_fields(name):
    rule = update_rule(name)
    assert rule.name == name
    assert rule.summary
    assert not rule.rest or set(map(update_rule(rule.rest).covers, KINDS)) == {True}
    assert rule.rest or all(map(rule.covers, KINDS))
    assert rule.by_shape or not (rule.rest or any(rule.products(8, 8)) or "gather" in rule.exchanges)
    assert "write --optimizer" in rule.refused or not rule.refused
    job = optimizer_of(name)
    assert pickle.loads(pickle.dumps(job)) == job
    assert job.rule is rule


@pytest.mark.parametrize("name", NAMES)
def test_state_is_of_scalars_and_arrays_alike_and_grows(name):
    rule, rows = update_rule(name), np.array([64.0, 128.0, 256.0])
    for kind in filter(rule.covers, KINDS):
        columns = 1.0 if kind == "vector" else 32.0
        many = np.broadcast_to(rule.state_bytes(TensorPieces(kind, 2.0, rows, columns), 4.0), rows.shape)
        each = [rule.state_bytes(TensorPieces(kind, 2.0, float(n), columns), 4.0) for n in rows]
        assert many == pytest.approx(np.array(each, dtype=float))
        # long tensors may have their moments rounded, short ones not
        assert (np.diff(many) >= 0).all() or rule.rounds_moments
        assert (many >= 0).all()
    assert rule.moved_bytes(PRECISIONS["bf16"]) >= 14


@pytest.mark.parametrize("name", NAMES)
def test_it_is_priced_under_every_way_to_shard(name):
    job = Job(seq=1024, global_batch=64, optimizer=optimizer_of(name))
    case = case_of(model_of("llama-3-8b"), cluster_of("8xh100"), job, stack_of("megatron-core"))
    together = estimate(case, Policies.of(POLICIES), every_stage=True)
    kept = together.memory.kinds["optimizer"].max(axis=1)
    assert (kept[1:] <= kept[0] / 2).all()
    assert (together.times.parts["optimizer"] > 0).all()
    for row, policy in enumerate(POLICIES):
        alone = estimate(case, Policies.of([policy]), every_stage=True)
        assert float(alone.times.step_s[0]) == pytest.approx(float(together.times.step_s[row]))
        assert float(alone.memory.peak[0]) == pytest.approx(float(together.memory.peak[row]))


@pytest.mark.parametrize("name", [name for name in NAMES if update_rule(name).spelled])
def test_programs_read_what_they_write(name):
    for program in update_rule(name).spelled:
        written = spelled_for(program)[name]
        # Adam is what some programs call AdamW
        assert written.lower() in update_rule(read_from(program, written.upper())).spelled[program].lower().split()


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_or_says_what_to_write(name):
    torch = pytest.importorskip("torch")
    from shardwise.run.runtime.train.optimizer import OptimizerSettings

    rule = update_rule(name)
    if rule.refused:
        with pytest.raises(ValueError, match=r"optimizer: .* cannot be run; .*write --optimizer"):
            OptimizerSettings(name=name)
        return
    if rule.factored:
        # tests/runtime/test_optimizer_steps.py holds it against torch's
        assert rule.stored(4, 8)
        return
    if rule.by_tensor:
        settings, gradient = OptimizerSettings(name=name), torch.ones(4, 8)
        made = {False: torch.zeros, True: lambda shape: torch.eye(*shape)}
        state = {kind: made[kind.endswith("_basis")](shape) for kind, shape in rule.stored(4, 8).items()}
        assert (rule.direction(gradient, state, 1, settings) * gradient).sum() > 0
        return
    weight = torch.nn.Parameter(torch.ones(4, 8))
    weight.grad = torch.ones_like(weight)
    optimizer = rule.make([weight], OptimizerSettings(name=name), weight_decay=0.0, foreach=True)
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    assert (weight < 1).all()
    held = [v for v in optimizer.state[weight].values() if v is not None and v.shape == weight.shape]
    assert len(held) == (rule.moments or 2.0 * rule.rounds_moments)


def test_unknown_names_say_what_is_near():
    with pytest.raises(ValueError, match=r"optimizer: 'adanw' is unknown; did you mean 'adamw'"):
        optimizer_of("adanw")
