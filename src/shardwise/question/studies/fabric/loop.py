"""The joint loop for a studied step; of very many micro-batches it runs some and extends the rest in proportion."""

from dataclasses import dataclass, replace
from time import perf_counter

from msgspec.structs import replace as with_fields

from shardwise.fabric.calls import calls_of
from shardwise.fabric.demand import Demand, demand_of
from shardwise.fabric.step import StepLoad, step_load
from shardwise.spec.policy import Policy
from shardwise.step.simulate import simulate
from shardwise.step.simulate.joint import JointStep, joint_step
from shardwise.step.simulate.step import Simulation
from shardwise.work.case import Case

MOST_TASKS = 30_000
"""of a step that the loop runs in full: some seconds"""


@dataclass(frozen=True)
class JointRun:
    simulation: Simulation
    load: StepLoad
    demand: Demand
    joint: JointStep
    unshared_s: float
    step_s: float
    """of the whole step, where fewer micro-batches were run than it has"""
    seconds: float
    """what one run of the loop took"""
    note: str = ""


def looped(case: Case, policy: Policy, found: Simulation, load: StepLoad) -> JointRun:
    """`found` and `load`: the whole step, simulated and placed."""
    many, tasks = found.program.micro_batches, len(found.program.rank)
    if tasks <= MOST_TASKS:
        return _looped(found, load)
    # whole rounds of the pipeline, as some schedules ask for
    rounds = max(MOST_TASKS * many // tasks // policy.pp, 4)
    parts = []
    for number in (rounds, rounds // 2):
        batch = number * policy.pp * policy.micro_batch * policy.dp
        short = with_fields(case.job, global_batch=batch, pipeline_passes=1)
        fewer = simulate(replace(case, job=short), policy)
        parts.append(_looped(fewer, step_load(load.prices, calls_of(fewer.closed.work))))
    ran = parts[0].simulation.program.micro_batches
    each = (parts[0].step_s - parts[1].step_s) / (ran - parts[1].simulation.program.micro_batches)
    longer = parts[0].step_s + (many - ran) * each
    note = (
        f"the loop ran {ran:,} of {many:,} micro-batches: the step is extended in proportion, load over time is theirs"
    )
    return JointRun(parts[0].simulation, parts[0].load, parts[0].demand, parts[0].joint,
                  parts[0].unshared_s + (many - ran) * each, longer, parts[0].seconds, note)  # fmt: skip


def _looped(found: Simulation, load: StepLoad) -> JointRun:
    begun = perf_counter()
    demand = demand_of(load)
    joint = joint_step(found, demand)
    seconds = perf_counter() - begun
    unshared = joint if not joint.lost_s else joint_step(found, demand, sharing=False)
    return JointRun(found, load, demand, joint, unshared.step_s, joint.step_s, seconds)
