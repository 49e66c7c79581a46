"""Constraints and frontiers against the slow way."""

import numpy as np
import pytest

from shardwise.plan import Limits, scan, space, table_of
from shardwise.plan.constraints import allowed, constraints_of, words_of
from shardwise.plan.pareto import staircase, undominated
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

STACK = stack_of("megatron-core")
GIVEN = (model_of("llama-3-8b"), cluster_of("dgx-h100:32"), Job(seq=8192, global_batch=128))


def test_words_and_values():
    only = constraints_of(["tp<=2,pp>1", "recompute!=full"])
    assert words_of(only) == "tp<=2, pp>1, recompute!=full"
    assert [c.accepts(1) for c in only] == [True, False, True]


@pytest.mark.parametrize(("text", "count"), [("tp=3", 0), ("micro=1,sp=off", None), ("schedule=interleaved", None)])
def test_fields_switches_and_choices(text, count):
    frames = space(case_of(*GIVEN, STACK)).frames
    ok = allowed(frames, constraints_of([text]))
    assert int(ok.sum()) == count if count is not None else 0 < int(ok.sum()) < len(frames)


@pytest.mark.parametrize(
    ("text", "cure"),
    [("tp", "write for example"), ("tp=", "write for example"), ("tpp=2", "did you mean 'tp'?"), ("tp=two", "tp=8"),
     ("recompute=ful", "did you mean 'full'?"), ("recompute<full", "recompute=full"), ("sp=maybe", "on or off"),
     ("", "write for example"), ("tp=8,,pp=2", "write for example"), ("tp=9999999999", "whole number")],
)  # fmt: skip
def test_bad_text_says_what_to_write(text, cure):
    with pytest.raises(ValueError, match=r"policy: ") as caught:
        constraints_of([text])
    assert cure in str(caught.value)


def test_the_frontier_is_what_no_other_policy_equals_in_both():
    limits = Limits(some_layers=False, shard_groups=False, micro_batch=2, vpp=2)
    only = constraints_of(["overlap_grad=on,overlap_param=on,overlap_tp=on,overlap_pp=on"])
    found = scan(case_of(*GIVEN, STACK), frontier=True, limits=limits, only=only)
    exact = estimate(case_of(*GIVEN, STACK), table_of(space(case_of(*GIVEN, STACK), limits, only)), every_stage=True)
    inside = exact.memory.peak <= found.limit_bytes
    rows = np.unique(np.stack([exact.times.step_s, exact.memory.peak], axis=1)[inside], axis=0)
    slow = [tuple(row) for row in rows
            if not ((rows <= row).all(axis=1) & (rows < row).any(axis=1)).any()]  # fmt: skip
    fast = [(c.step_s, c.peak_bytes) for c in found.frontier]
    assert len(fast) > 3
    np.testing.assert_allclose(fast, slow, rtol=1e-9)
    assert fast[0][0] == pytest.approx(found.best[0].step_s)


def test_stairs_and_dominance_on_small_numbers():
    steps, peaks = np.array([3.0, 1.0, 2.0, 2.0, 0.5]), np.array([1.0, 5.0, 3.0, 4.0, 9.0])
    assert staircase(steps, peaks, 8.0).tolist() == [1, 2, 0]
    assert staircase(steps, peaks, 0.5).tolist() == []
    assert undominated([(1, 2), (2, 1), (2, 2), (1, 2)]) == [0, 1]
