"""The space: everything legal, nothing else, nothing twice."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest

from shardwise.plan import Limits, space, table_of
from shardwise.plan.constraints import allowed, constraints_of
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import legal, verdict_of
from shardwise.spec.software import stack_of
from shardwise.spec.software.limits import runs
from shardwise.work.case import case_of

STACK = stack_of("megatron-core")
FREE = STACK.changed(limits=())
"""whatever is legal runs"""
GIVEN = (model_of("llama-3-8b"), cluster_of("8xh100"), Job(seq=4096, global_batch=16))
FEW = Limits(micro_batch=2)
ON = constraints_of(["overlap_grad=on,overlap_param=on,overlap_tp=on,overlap_pp=on"])
"""what is overlapped multiplies the space by 16 and has a test of its own"""


def rows(policies):
    return np.stack([getattr(policies, f.name) for f in fields(policies)], axis=1)


def test_every_point_is_legal_and_there_once():
    found = space(case_of(*GIVEN, STACK), FEW, ON)
    policies = table_of(found)
    assert legal(*GIVEN, policies).all()
    assert len(np.unique(rows(policies), axis=0)) == len(policies) == found.points


@pytest.mark.parametrize("replicas", [False, True])
def test_settings_of_many_frames_are_those_of_each(replicas):
    found = space(case_of(*GIVEN, STACK), Limits(replicas=replicas))
    frames = np.random.default_rng(0).permutation(len(found.frames))[:200]
    ways = [(place, *way) for place, frame in enumerate(frames) for way in found.sharding(int(frame))]
    assert found.shardings(frames).tolist() == [list(way) for way in ways]
    numbers, count = found.numbers_of_layers(frames)
    each = [found.some_layers(int(frame)) for frame in frames]
    assert [tuple(row[:many]) for row, many in zip(numbers.tolist(), count, strict=True)] == each
    assert not len(found.shardings(frames[:0]))


@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b"])
def test_nothing_legal_is_missing(model):
    """Frames counted the slow way: one policy at a time."""
    given = (model_of(model), *GIVEN[1:])
    layers, eps = given[0].layers, (1,) if model == "llama-3-8b" else (1, 2, 4, 8)
    slow = set()
    for tp, pp, cp, vpp, ep in product((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4), range(1, 17), eps):
        if 8 % (tp * pp * cp) or (vpp > 1 and (pp == 1 or (layers % (pp * vpp) and (layers + 2) % (pp * vpp)))):
            continue
        dp = 8 // (tp * pp * cp)
        splits = (0,) if tp == 1 or len(eps) == 1 else (0, tp if ep > 1 else 1)
        for micro, sp, etp in product((1, 2), (True, False) if tp > 1 else (False,), splits):
            orders = ["tp-cp-dp-pp"]
            orders += ["tp-dp-cp-pp"] if cp > 1 and dp > 1 else []
            orders += ["tp-pp-cp-dp"] if pp > 1 and cp * dp > 1 else []
            orders += ["tp-pp-dp-cp"] if pp > 1 and cp > 1 and dp > 1 else []
            for order in orders:
                policy = Policy(dp=dp, tp=tp, pp=pp, cp=cp, vpp=vpp, ep=ep, etp=etp, micro_batch=micro, sp=sp,
                                order=order, schedule="interleaved" if vpp > 1 else "1f1b")  # fmt: skip
                if verdict_of(*given, policy, cure=False).legal:
                    slow.add((dp, tp, pp, vpp, cp, ep, etp, sp, micro, policy.schedule, order))
    frames = space(case_of(*given, FREE), FEW).frames
    names = ("dp", "tp", "pp", "vpp", "cp", "ep", "etp", "sp", "micro_batch", "schedule", "order")
    fast = {tuple(getattr(frames[i], name) for name in names) for i in range(len(frames))}
    assert fast == slow


def test_settings_are_what_the_stack_can_do():
    policies = table_of(space(case_of(*GIVEN, STACK), FEW, ON))
    assert set(policies.zero[policies.pp > 1]) == {0, 1}
    assert set(policies.zero[policies.pp == 1]) == {0, 1, 2, 3}
    assert set(policies.offload) == {0, 1}
    some = policies.recompute_layers[policies.pp == 8]
    assert set(some) == {-1, 1, 2, 3}
    assert set(policies.shard_group[policies.dp == 8]) == {0, 2, 4}
    torchtitan = space(case_of(*GIVEN, stack_of("torchtitan")), FEW).frames
    assert len(set(torchtitan.schedule)) == 7
    whole_blocks = table_of(space(case_of(*GIVEN, stack_of("automodel@benchmark")), FEW))
    assert set(whole_blocks.recompute) == {0, 2}


def test_what_is_asked_for_by_name_is_there_even_if_the_stack_lacks_it():
    only = constraints_of(["schedule=zb_v", "offload=both", "zero=3", "recompute=selective"])
    policies = table_of(space(case_of(*GIVEN, stack_of("automodel@benchmark")), FEW, only))
    assert len(policies)
    assert (policies.pp > 1).all()
    assert allowed(policies, only).all()


def test_limits_are_kept():
    limits = Limits(nodes_of_tp=1, micro_batch=2, zero=(1, 3), recompute=("selective",), offload=("none",))
    few = table_of(space(case_of(*GIVEN, STACK), limits, ON))
    assert few.micro_batch.max() == 2
    assert set(few.zero) <= {1, 3}
    assert set(few.recompute) == {1}
    assert set(few.offload) == {0}


@pytest.mark.parametrize("texts", [["tp<=2,pp>1", "recompute!=full"], ["shard_group=2", "tp=1"],
                                   ["recompute_layers>=2"], ["offload=none", "order=tp-cp-dp-pp"]])  # fmt: skip
def test_constraints_leave_out_what_they_say_and_nothing_else(texts):
    only = (*constraints_of(texts), *ON)
    found = space(case_of(*GIVEN, STACK), FEW, only)
    policies, everything = table_of(found), table_of(space(case_of(*GIVEN, STACK), FEW, ON))
    if "recompute!=full" in texts:  # recompute by name is of all layers
        everything = everything.take(np.flatnonzero(everything.recompute_layers < 0))
    kept = everything.take(np.flatnonzero(allowed(everything, only)))
    assert len(policies) == found.points == len(kept) > 0
    np.testing.assert_array_equal(np.unique(rows(policies), axis=0), np.unique(rows(kept), axis=0))


def test_overlaps_the_stack_has_may_be_off():
    few = constraints_of(["tp=2,pp=2,micro=1,recompute=none,offload=none,zero=1,shard_group=0,vpp=1,sp=on"])
    policies = table_of(space(case_of(*GIVEN, FREE), FEW, few))
    names = ("overlap_grad", "overlap_param", "overlap_tp", "overlap_pp")
    assert len(np.unique(np.stack([getattr(policies, name) for name in names]), axis=1).T) == 16
    serial = table_of(space(case_of(*GIVEN, stack_of("megatron-core@serial")), FEW, few))
    assert not any(getattr(serial, name).any() for name in names)


@pytest.mark.parametrize("name", ["megatron-core", "torchtitan", "automodel", "nanotron", "torch-fsdp", "deepspeed"])
@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b"])
def test_only_what_the_program_runs_is_there_and_is_counted(name, model):
    stack = stack_of(name)
    given = case_of(model_of(model), *GIVEN[1:], stack)
    limits = Limits(micro_batch=1, orders=("tp-cp-dp-pp", "tp-pp-cp-dp"))
    found, free = (space(case, limits) for case in (given, replace(given, stack=stack.changed(limits=()))))
    policies, everything = table_of(found), table_of(free)
    assert len(policies) == found.points < len(everything)
    # some layers that recompute are left out by the step they are counted in, so that all of it is asked again here
    kept = everything.take(np.flatnonzero(runs(stack.abilities.limits, everything)))
    np.testing.assert_array_equal(np.unique(rows(policies), axis=0), np.unique(rows(kept), axis=0))


def test_frames_come_with_the_best_overlaps_that_run():
    frames = space(case_of(*GIVEN, STACK), FEW).frames
    staged = frames.pp > 1
    assert not frames.overlap_pp[staged & (frames.vpp == 1)].any()
    assert frames.overlap_pp[staged & (frames.vpp > 1)].all()
    assert (frames.overlap_tp[frames.tp > 1] == frames.sp[frames.tp > 1]).all()
    named = space(case_of(*GIVEN, STACK), FEW, constraints_of(["overlap_pp=on"])).frames
    assert named.overlap_pp.all()


def test_an_impossible_constraint_says_so():
    with pytest.raises(ValueError, match="nothing in the space has zero=7; write one of 0, 1, 2, 3"):
        space(case_of(*GIVEN, STACK), FEW, constraints_of(["zero=7"]))


def test_chunks_may_count_embedding_and_head_as_layers():
    job = Job(seq=8192, global_batch=2048)
    found = space(case_of(model_of("llama-3.1-405b"), cluster_of("dgx-h100:1024"), job, STACK)).frames
    assert ((found.pp == 16) & (found.vpp == 8)).any()
    assert not ((found.pp == 16) & (found.vpp == 7)).any()


def test_columns_and_policies_are_the_same_thing():
    policy = Policy(tp=2, order="tp-pp-cp-dp", offload="both", recompute="full", recompute_layers=3)
    assert Policies.of([policy])[0] == policy
