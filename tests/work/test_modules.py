"""Selective recompute of named modules: what is dropped, what runs again, what is sent again."""

import numpy as np
import pytest

from shardwise import Job, Policy, case_of, cluster_of, model_of, stack_of
from shardwise.spec.policy import MODULES, Policies
from shardwise.spec.rules import verdict_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work import work_of
from shardwise.work.case import Case

MOONLIGHT = model_of("moonlight-16b-a3b")
LLAMA = model_of("llama-3-8b")


def _case(name: str = "moonlight-16b-a3b", batch: int = 4) -> Case:
    stack = stack_of("megatron-bridge@recipes")
    job = Job(seq=4096, global_batch=batch, precision=stack.precision_for("bf16"))
    return case_of(model_of(name), cluster_of("8xh100"), job, stack)


def _policy(*modules: str, tp: int = 2, ep: int = 8) -> Policy:
    return Policy(
        tp=tp, dp=8 // tp, ep=ep, recompute="selective" if modules else "none", recompute_modules=modules
    )  # fmt: skip


MEASURED = {
    (): (36.618, 457.18), ("core_attn",): (36.614, 474.80), ("mla_up_proj",): (35.902, 480.89),
    ("mla_up_proj", "mlp"): (35.917, 496.73), ("moe_act",): (35.941, 466.26),
    ("layernorm", "moe_act"): (35.949, 506.53),
}  # fmt: skip
"""GB allocated and ms: Megatron-Bridge's study of Moonlight 16B on 8 H100, tp 2, ep 8, four sequences of 4,096"""


@pytest.mark.parametrize("modules", MEASURED)
def test_moonlights_published_peaks(modules: tuple[str, ...]) -> None:
    found = estimate(_case(), Policies.of([_policy(*modules)]), every_stage=True)
    gigabytes, milliseconds = MEASURED[modules]
    assert found.memory.peak[0] / 1e9 == pytest.approx(gigabytes, rel=0.02)
    assert found.times.step_s[0] * 1e3 == pytest.approx(milliseconds, rel=0.2)


def test_every_module_drops_something_and_costs_something() -> None:
    case = _case()
    names = [name for name in MODULES if name != "core_attn"]
    found = estimate(case, Policies.of([_policy(), *(_policy(name) for name in names)]))
    assert (found.memory.kinds["activations"][1:, 0] < found.memory.kinds["activations"][0, 0]).all()
    assert (found.times.parts["recompute"][1:] > 0).all()
    assert found.times.parts["recompute"][0] == 0


def test_all_modules_drop_less_than_full_recompute() -> None:
    everything = _policy(*(m for m in MODULES))
    found = estimate(_case(), Policies.of([everything, Policy(tp=2, dp=4, ep=8, recompute="full")]))
    assert found.memory.kinds["activations"][0, 0] > found.memory.kinds["activations"][1, 0]
    assert found.times.parts["recompute"][0] < found.times.parts["recompute"][1]


def test_a_repeated_module_sends_its_messages_again() -> None:
    work = work_of(_case("llama-3-8b", 8), Policies.of([_policy("mlp", ep=1)]), every_stage=True)
    again = [x for x in work.kinds[0].collectives if x.phase == "recompute" and np.any(x.count)]
    assert {x.op for x in again} == {"all_gather", "reduce_scatter"}
    assert all(x.name.startswith("feed_forward") for x in again)


def test_policies_with_and_without_modules_in_one_batch() -> None:
    policies = [_policy(), _policy("moe"), Policy(tp=2, dp=4, ep=8, recompute="selective")]
    together = estimate(_case(), Policies.of(policies))
    for i, policy in enumerate(policies):
        alone = estimate(_case(), Policies.of([policy]))
        assert together.memory.peak[i] == pytest.approx(alone.memory.peak[0], rel=1e-12)
        assert together.times.step_s[i] == pytest.approx(alone.times.step_s[0], rel=1e-12)


def test_modules_that_a_model_lacks_are_refused() -> None:
    cluster, job = cluster_of("8xh100"), Job(seq=4096, global_batch=8)
    verdict = verdict_of(LLAMA, cluster, job, _policy("moe_act", "mlp", ep=1))
    assert (verdict.rule, verdict.legal) == ("recompute modules", False)
    assert verdict.why == "no layer has moe_act; take core_attn, layernorm, mlp"
    assert verdict.cure is not None
    assert verdict_of(LLAMA, cluster, job, verdict.cure).legal
    assert verdict_of(MOONLIGHT, cluster, Job(seq=4096, global_batch=8), _policy("moe_act", "mla_up_proj")).legal
