"""Random cases for metamorphic laws: models of the catalog and random shapes, clusters, stacks, and policies that the
stack's program runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
from msgspec.structs import replace

from _agree_cases import KINDS, random_cluster, random_job, random_model, random_policy
from shardwise.plugins.pipeline import needs, schedule_names, schedules_named
from shardwise.spec.policy import LOSS, OVERLAPS, Policies, Policy
from shardwise.spec.rules import legal
from shardwise.spec.software import Stack, stack_names, stack_of
from shardwise.spec.software.limits import as_run, runs
from shardwise.work.case import Case, case_of

POLICIES = 16
"""of a case, at most"""
DRAWN = 80
LEAST = 3
MOST_GPUS = 64
MOST_MICRO_BATCHES = 256
FACTORS = (1.01, 1.1, 1.5, 2.0, 4.0)
"""by which hardware gets better"""


@dataclass(frozen=True)
class Drawn:
    number: int
    case: Case
    policies: Policies
    factor: float


def drawn_cases(count: int, seed: str, first: int = 0) -> Iterator[Drawn]:
    """The first of a longer list are the same as a shorter one."""
    for number in range(first, first + count):
        yield drawn_case(number, seed)


def drawn_case(number: int, seed: str) -> Drawn:
    generator = Random(f"{seed}/metamorphic/{number}")
    stacks = stack_names()
    while True:
        stack, model = stack_of(generator.choice(stacks)), random_model(generator)
        cluster = random_cluster(generator.choice(KINDS), generator, MOST_GPUS)
        job = replace(random_job(generator), precision=stack.precision(generator.choice(["bf16", "bf16", "fp8"])))
        try:
            case = case_of(model, cluster, job, stack)
        except ValueError:
            continue  # a sequence that the model has no positions for
        policies = _policies(case, generator)
        if len(policies) >= LEAST:
            return Drawn(number, case, policies, generator.choice(FACTORS))


def _policies(case: Case, generator: Random) -> Policies:
    able = [_able(case.stack, random_policy(case.model, case.cluster, generator, _schedule(case.stack, generator)),
                  case.model.layers, generator) for _ in range(DRAWN)]  # fmt: skip
    table = Policies.of(dict.fromkeys(policy for policy in able if policy is not None))
    if not len(table):
        return table
    ok = legal(case.model, case.cluster, case.job, table) & runs(case.stack.abilities.limits, table)
    ok &= case.job.global_batch // np.maximum(table.dp * table.micro_batch, 1) <= MOST_MICRO_BATCHES
    return table.take(np.flatnonzero(ok)[:POLICIES])


def _schedule(stack: Stack, generator: Random) -> str:
    """Half of the policies have stages where the program has some."""
    staged = [name for name in schedules_named(stack.abilities.schedules) if name != "none"]
    return generator.choice(staged) if staged and generator.random() < 0.5 else "none"


def _able(stack: Stack, policy: Policy, layers: int, generator: Random) -> Policy | None:
    """The policy with settings that the program has."""
    able = stack.abilities
    zero = [z for z in able.zero if policy.pp == 1 or z <= able.zero_with_stages]
    if not zero or (policy.pp > 1 and policy.schedule not in schedules_named(able.schedules)):
        return None
    schedule, vpp = policy.schedule, policy.vpp
    if policy.pp == 1:
        known = schedules_named(able.schedules)
        schedule, vpp = next((name for name in known if needs()[name].met(1, 1, 1)), schedule_names()[0]), 1
    zero_stage = generator.choice(zero)
    recompute = generator.choice(able.recompute)
    some = recompute == "full" and generator.random() < 0.3
    away = generator.choice(["none", *able.offload])
    group = policy.shard_group if zero_stage and policy.shard_group > 1 else 0
    return as_run(able.limits, replace(
        policy, schedule=schedule, vpp=vpp, zero=zero_stage, shard_group=group,
        recompute=recompute, recompute_layers=generator.randint(1, max(layers // policy.pp, 1)) if some else -1,
        offload=away, offload_share=1.0 if away == "none" else generator.choice([1.0, 0.5]),
        loss=generator.choice(["", "", *LOSS[1:]]), attention=generator.choice(["flash"] * 5 + ["plain"]),
        **{name: bool(stack.setting(name)) and getattr(policy, name) for name in OVERLAPS},
    ))  # fmt: skip
