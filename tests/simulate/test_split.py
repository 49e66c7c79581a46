"""Layers of stages: the search finds the best there is, and memory decides what recomputes."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.arch import model_of
from shardwise.simulate.split import _search, _step, best_split, simulate_split
from shardwise.software import stack_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy

CORE = stack_of("megatron-core")
LLAMA = model_of("llama-3-8b")


def every_cut(stages, layers):
    for inner in combinations_with_replacement(range(layers + 1), stages - 1):
        yield np.array([0, *inner, layers])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 7), st.integers(1, 20), st.floats(0.01, 1))
def test_the_search_is_exact(seed, stages, layers, micro_batches, share):
    rng = np.random.default_rng(seed)
    shape = (stages, layers + 1, layers + 1)
    seconds = np.where(rng.random(shape) < 0.15, np.inf, rng.integers(1, 6, shape).astype(float))
    seconds = np.where(np.triu(np.ones(shape[1:])), seconds, np.inf)
    m = micro_batches + stages
    best = min((_step(seconds, cuts, m, share) for cuts in every_cut(stages, layers)), default=np.inf)
    found = _search(seconds, m, share)
    if not np.isfinite(best):
        assert found is None
    else:
        assert _step(seconds, found, m, share) == pytest.approx(best)


def split_of(model, on, policy, **more):
    return best_split(model, cluster_of(on), Job(seq=8192, global_batch=64), policy, CORE, **more)


def test_the_head_gives_layers_away():
    found = split_of(LLAMA, "8xh100", Policy(pp=8))
    assert sum(found.best.layers) == 32
    assert found.best.layers[-1] < found.even.layers[-1]
    assert max(found.best.stage_s) < max(found.even.stage_s)
    given_ = (LLAMA, cluster_of("8xh100"), Job(seq=8192, global_batch=64), Policy(pp=8), CORE)
    steps = [simulate_split(*given_, split).step_s for split in (found.even, found.best)]
    assert steps[1] < steps[0]


def test_one_stage_holds_everything():
    found = split_of(LLAMA, "8xh200", Policy(dp=8))
    assert found.best.layers == (32,)


def test_memory_decides_which_layers_recompute():
    roomy = split_of(LLAMA, "8xh200", Policy(pp=8))
    tight = split_of(LLAMA, "8xh200", Policy(pp=8), headroom=0.25)
    assert sum(roomy.best.recomputed) == 0
    assert sum(tight.best.recomputed) > 0
    assert max(tight.best.peak_bytes) <= tight.limit_bytes < max(roomy.best.peak_bytes)
    # the first stages hold most micro-batches
    assert tight.best.recomputed[0] >= tight.best.recomputed[6]
    assert max(tight.best.stage_s) >= max(roomy.best.stage_s)


def test_the_timeline_holds_what_the_split_promises():
    for headroom in (1.0, 0.25):
        found = split_of(LLAMA, "8xh200", Policy(pp=8), headroom=headroom).best
        step = simulate_split(LLAMA, cluster_of("8xh200"), Job(seq=8192, global_batch=64), Policy(pp=8), CORE, found)
        peaks = [peak.bytes for peak in step.timeline().peaks()]
        assert peaks == pytest.approx(found.peak_bytes, rel=0.01)


def test_layers_of_several_kinds():
    model = model_of("deepseek-v3")
    found = best_split(
        model, cluster_of("h800:2048"), Job(seq=4096, global_batch=2048), Policy(pp=16, dp=128, ep=64), CORE
    )
    assert sum(found.best.layers) == 61
    assert max(found.best.stage_s) <= max(found.even.stage_s)


def test_nothing_fits():
    found = split_of(model_of("llama-3-70b"), "8xh100", Policy(pp=8))
    assert found.best is None
    assert not found.even.fits
