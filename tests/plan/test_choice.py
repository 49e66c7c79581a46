"""The policy a plan tells to take: inside the accepted risk, as fast as can be told, simple, near what was measured."""

from math import inf

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.plan import scan
from shardwise.plan.candidate import Candidate
from shardwise.plan.choice import ALIKE, FAR, FAR_COUNTS, RISK, Weighed, best_of, mechanisms, recommended_of
from shardwise.plan.nearest import nearest_run
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.chance import most_bytes, out_of_memory_chance
from shardwise.work.case import case_of

STACK = stack_of("megatron-core")


def case(model="llama-3-8b", on="dgx-h100:16", seq=8192, batch=128):
    return case_of(model_of(model), cluster_of(on), Job(seq=seq, global_batch=batch), STACK)


def candidate(policy: Policy, step_s: float, peak_gib: float = 40.0) -> Candidate:
    return Candidate(policy, step_s, 1.0 / step_s, peak_gib * 2**30)


def test_chance_rises_with_the_peak_and_is_turned_round():
    here = case()
    peaks = np.linspace(1e9, 90e9, 200)
    chance = out_of_memory_chance(here, peaks)
    assert (np.diff(chance) >= 0).all()
    assert chance[0] == 0.0
    assert chance[-1] > 0.7
    for asked in (0.01, 0.1, 0.3):
        assert float(out_of_memory_chance(here, np.array([most_bytes(here, asked)]))[0]) == pytest.approx(asked)


def test_what_is_listed_stays_inside_the_risk():
    here = case("llama-3-70b", "dgx-h100:64")
    for risk in (0.02, RISK, 1.0):
        found = scan(here, top=5, risk=risk, losers=False)
        chances = out_of_memory_chance(here, np.array([each.peak_bytes for each in found.best]))
        assert (chances <= risk + 1e-9).all()
    bold, careful = (scan(here, top=1, risk=risk, losers=False) for risk in (1.0, 0.01))
    assert bold.best[0].step_s <= careful.best[0].step_s
    assert bold.best[0].peak_bytes >= careful.best[0].peak_bytes


def test_where_nothing_is_inside_the_risk_what_fits_is_listed(monkeypatch):
    here = case(on="dgx-h100:8")
    bold = scan(here, top=3, risk=1.0, losers=False)
    monkeypatch.setattr("shardwise.plan.exhaustive.most_bytes", lambda _case, _risk: 1.0)
    careful = scan(here, top=3, losers=False)
    assert [each.policy for each in careful.best] == [each.policy for each in bold.best]
    assert careful.limit_bytes == bold.limit_bytes


def test_extremes_are_scans_of_their_own():
    here = case("llama-3-70b", "dgx-h100:64")
    found = scan(here, extremes=True)
    assert found.fastest.step_s == pytest.approx(scan(here, top=1, risk=1.0, losers=False).best[0].step_s, rel=0.01)
    assert found.safest.peak_bytes <= most_bytes(here, 0.01)
    assert found.recommended.step_s <= found.best[0].step_s * (1 + ALIKE) * (1 + FAR_COUNTS)


def test_ties_go_to_the_simpler_then_to_the_faster_then_to_the_roomier():
    here, plain = case(on="dgx-h100:8"), Policy(dp=4, tp=2)
    interleaved = Policy(dp=4, pp=2, vpp=2, schedule="interleaved")
    pool = [candidate(interleaved, 1.0), candidate(plain, 1.0 + ALIKE / 2)]
    assert mechanisms(interleaved) > mechanisms(plain)
    assert recommended_of(here, pool).policy == plain
    assert recommended_of(here, [pool[0], candidate(plain, 1.0 + 10 * ALIKE)]).policy == interleaved
    repeating = replace(plain, recompute="selective")
    assert recommended_of(here, [candidate(repeating, 1.0), candidate(plain, 1.0 + ALIKE / 2)]).policy == plain
    room = [candidate(plain, 1.0, 50.0), candidate(replace(plain, micro_batch=2), 1.0, 30.0)]
    assert recommended_of(here, room).peak_bytes == 30.0 * 2**30
    room[1] = candidate(replace(plain, micro_batch=2), 1.0 + ALIKE / 2, 30.0)
    assert recommended_of(here, room).policy == plain
    assert recommended_of(here, []) is None


def test_of_equally_fast_ones_what_is_near_the_memorys_edge_goes_last():
    simple, roomy = candidate(Policy(dp=8), 1.0, 70.0), candidate(Policy(dp=4, cp=2), 1.0 + ALIKE / 2, 40.0)
    edge, far_from_it = Weighed(simple, 2 * RISK, 0.0), Weighed(roomy, RISK / 2, 0.0)
    assert best_of([edge, far_from_it]) is far_from_it
    assert best_of([Weighed(simple, RISK / 2, 0.0), far_from_it]).found is simple
    as_simple = Weighed(candidate(Policy(dp=8, micro_batch=2), 1.0 + ALIKE / 2, 65.0), 2 * RISK, 0.0)
    assert best_of([edge, as_simple]) is as_simple, "near the edge room counts, not half a percent"
    assert best_of([edge, Weighed(candidate(roomy.policy, 1.0 + 3 * ALIKE), 0.0, 0.0)]) is edge


def test_what_was_never_measured_counts_as_slower():
    here = case(on="dgx-h100:64")
    usual, corner = Policy(dp=64), Policy(cp=16, pp=4, vpp=4, micro_batch=4)
    assert nearest_run(here, usual).distance < FAR <= nearest_run(here, corner).distance
    assert Weighed(candidate(corner, 2.0), 0.0, FAR).counted_s == pytest.approx(2.0 * (1 + FAR_COUNTS))
    pool = [candidate(corner, 1.0), candidate(usual, 1.0 + FAR_COUNTS / 2)]
    assert recommended_of(here, pool).policy == usual


def test_the_nearest_run_is_named_with_what_differs():
    here = case("llama-3-70b", "dgx-h100:64")
    found = nearest_run(here, Policy(dp=2, tp=4, pp=4, cp=2))
    assert found.run.gpu == "h100"
    assert "70B" in found.run.model
    far = nearest_run(here, Policy(dp=2, tp=4, pp=4, cp=2), without=found.run.source)
    assert far.run.source != found.run.source
    assert found.distance <= far.distance < inf
    assert all(word in str(far) for word in far.unlike)


def test_bad_risk():
    with pytest.raises(ValueError, match="risk: 0 is out of range; write the accepted risk"):
        scan(case(), risk=0.0)
