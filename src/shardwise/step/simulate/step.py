"""Model + Cluster + Job + Policy + Stack -> Timeline of one training step.

GPUs that do the same are one rank: the pipelines of all data-parallel replicas are one unless some have a straggler,
and the members of tensor- and context-parallel groups are one always, so 16,384 GPUs cost what their classes cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.step.simulate.costs import Costs, costs_of
from shardwise.step.simulate.live import memory_steps
from shardwise.step.simulate.noise import Jitter, Straggler, slowest_of
from shardwise.step.simulate.pipeline import TaskTimes, reductions, timed
from shardwise.step.simulate.placed import pieces_of, rank_work
from shardwise.step.simulate.sent import sent_bytes
from shardwise.step.simulate.spans import (
    compute_rows,
    copy_rows,
    joined,
    recompute_rows,
    send_rows,
    stream_rows,
    whole_rank,
)
from shardwise.step.simulate.timeline import MemorySteps, Timeline
from shardwise.step.tasks.engine import EngineRun, again
from shardwise.step.tasks.program import Program, program_of
from shardwise.work.case import Case

BLOCK = 1 << 21
"""tasks x steps computed at once when many steps are simulated"""


@dataclass(frozen=True)
class SimulatedPipeline:
    """One class of data-parallel replicas."""

    replicas: int
    timed: TaskTimes
    run: EngineRun
    reduce_start: Floats
    """ranks x chunks"""
    reduce_end: Floats


@dataclass(frozen=True)
class Simulation:
    policy: Policy
    closed: Estimate
    program: Program
    costs: Costs
    pipelines: tuple[SimulatedPipeline, ...]
    pipeline_end_s: float
    synced_s: float
    """gradients reduced on every rank"""
    busy_s: float
    """and the optimizer done"""
    step_s: float
    rank_layers: Ints | None = None
    """of each rank, where they do not lie as the program deals them out, as the closed form has them"""

    def timeline(self) -> Timeline:
        return _timeline(self)

    def step_samples(self, jitter: Jitter) -> Floats:
        """Step times with varying tasks. What is behind the pipeline keeps its plan; the stack's own allowance for
        waiting is left out, as the variation is simulated."""
        generator = np.random.default_rng(jitter.seed)
        worst = np.zeros(jitter.steps)
        for pipe in self.pipelines:
            ends = _varied(self.program, pipe, jitter, generator)
            worst = np.maximum(worst, slowest_of(ends, pipe.replicas, generator))
        return np.asarray(worst + (self.busy_s - self.pipeline_end_s) + self.costs.other_s)


def simulate(
    case: Case,
    policy: Policy,
    *,
    stragglers: Sequence[Straggler] = (),
    rank_layers: Sequence[int] | None = None,
) -> Simulation:
    """`rank_layers`: layers of each rank, where they are not dealt out as the stack does. The policy must be legal."""
    closed = estimate(case, Policies.of([policy]), every_stage=True)
    layout = closed.work.layout
    program = program_of(policy.schedule, policy.pp, policy.vpp, int(layout.in_pass[0]), int(layout.passes[0]))
    layers = np.asarray(closed.work.stages.layers[0] if rank_layers is None else rank_layers, dtype=np.int64)
    _check(case.model, policy, layers, stragglers)
    pieces = pieces_of(case.model, program, layers)
    work = rank_work(case, policy, program, pieces)
    costs = costs_of(case, closed, work, policy, program, pieces)
    found = composed(policy, closed, program, costs, stragglers)
    return found if rank_layers is None else replace(found, rank_layers=layers)


def composed(
    policy: Policy, closed: Estimate, program: Program, costs: Costs, stragglers: Sequence[Straggler] = ()
) -> Simulation:
    """The step in time, from what each piece costs."""
    pipes = [
        _pipeline(program, costs, replicas, gpu, link)
        for replicas, gpu, link in _classes(policy.dp, program.pp, stragglers)
    ]
    # a reduction ends on all replicas at once: with the slowest of them
    reduced = np.max([pipe.reduce_end for pipe in pipes], axis=0)
    pipes = [replace(pipe, reduce_end=reduced) for pipe in pipes]
    pipeline_end = max(costs.carried_s, *(float(pipe.run.end.max()) for pipe in pipes))
    synced = max(max(pipeline_end, float(reduced.max())) + costs.shared_s, costs.sent_s)
    # the optimizer waits for the norm of all gradients, so for every rank
    busy = synced + float(costs.optimizer_s.max())
    step = busy * (1.0 + costs.other_share) + costs.other_s
    return Simulation(policy, closed, program, costs, tuple(pipes), pipeline_end, synced, busy, step)


def _check(model: Model, policy: Policy, layers: Ints, stragglers: Sequence[Straggler]) -> None:
    if len(layers) != policy.pp or layers.sum() != model.layers or (layers < 0).any():
        raise ValueError(
            f"layers: {'+'.join(map(str, layers))} on {len(layers)} stages; write pp = {policy.pp} numbers that add up "
            f"to {model.layers}"
        )
    for slow in stragglers:
        most = policy.pp - 1 - slow.link
        if slow.stage > most or slow.replicas > policy.dp:
            what = "link" if slow.link else "stage"
            here = "pp 1 has no links" if most < 0 else f"write a {what} from 0 to {most}"
            raise ValueError(
                f"straggler: {what} {slow.stage} of {slow.replicas} replicas; {here} and at most {policy.dp} replicas"
            )


def _classes(dp: int, pp: int, stragglers: Sequence[Straggler]) -> list[tuple[int, Floats, Floats]]:
    """(replicas, slowdown of each rank, of each link): every straggler in pipelines of its own, then the healthy."""
    classes: list[tuple[int, Floats, Floats]] = []
    left = dp
    for slow in stragglers:
        gpu, link = np.ones(pp), np.ones(pp)
        (link if slow.link else gpu)[slow.stage] = slow.factor
        replicas = min(slow.replicas, left)
        if replicas:
            classes.append((replicas, gpu, link))
        left -= replicas
    if left:
        classes.insert(0, (left, np.ones(pp), np.ones(pp)))
    return classes


def _pipeline(program: Program, costs: Costs, replicas: int, gpu: Floats, link: Floats) -> SimulatedPipeline:
    found = timed(program, costs, gpu, link)
    run = found.run(program)
    return SimulatedPipeline(replicas, found, run, *reductions(program, costs, found, run))


def _varied(program: Program, pipe: SimulatedPipeline, jitter: Jitter, generator: "np.random.Generator") -> Floats:
    found, tasks = pipe.timed, program.tasks
    width = max(BLOCK // len(tasks), 1)
    ends = []
    for first in range(0, jitter.steps, width):
        factors = jitter.factors(len(tasks), min(width, jitter.steps - first), generator)
        lengths = found.duration[:, None] * factors
        ends.append(again(tasks, lengths, found.delay, found.release).max(axis=0))
    return np.concatenate(ends)


def _timeline(simulation: Simulation) -> Timeline:
    program, costs, pp = simulation.program, simulation.costs, simulation.program.pp
    sent = sent_bytes(program, simulation.closed.work, simulation.rank_layers)
    rows, memory = [], []
    all_ranks = np.arange(len(simulation.pipelines) * pp)
    for number, pipe in enumerate(simulation.pipelines):
        ranks = all_ranks[number * pp : (number + 1) * pp]
        chunk = np.tile(np.arange(program.held.shape[1]), pp)
        wide = np.repeat(ranks, program.held.shape[1])
        gather_end = pipe.timed.gathered.reshape(-1)
        rows += [
            compute_rows(program, pipe.run, ranks),
            *recompute_rows(program, pipe.run, costs, ranks),
            send_rows(program, pipe.run, pipe.timed, sent.handover, ranks),
            *stream_rows(program, pipe.run, costs, sent, ranks),
            *copy_rows(program, pipe.run, costs, ranks),
            whole_rank("param", "gather", wide, gather_end - costs.gather_s.reshape(-1), gather_end,
                       sent.gathered.reshape(-1), chunk),
            whole_rank("grad", "reduce", wide, pipe.reduce_start.reshape(-1), pipe.reduce_end.reshape(-1),
                       sent.reduced.reshape(-1), chunk),
            whole_rank("compute", "optimizer", ranks, np.full(pp, simulation.synced_s),
                       simulation.synced_s + costs.optimizer_s),
            whole_rank("compute", "other", ranks, np.full(pp, simulation.busy_s), np.full(pp, simulation.step_s)),
        ]  # fmt: skip
        memory.append(memory_steps(program, pipe.run, costs.held, ranks))
    per_stage = simulation.policy.tp * simulation.policy.cp
    return Timeline(
        spans=joined(rows),
        memory=_together(memory),
        stage=all_ranks % pp,
        gpus=np.repeat([pipe.replicas * per_stage for pipe in simulation.pipelines], pp),
        step_s=simulation.step_s,
    )


def _together(parts: list[MemorySteps]) -> MemorySteps:
    return MemorySteps(
        rank=np.concatenate([p.rank for p in parts]),
        time_s=np.concatenate([p.time_s for p in parts]),
        kind=np.concatenate([p.kind for p in parts]),
        bytes=np.concatenate([p.bytes for p in parts]),
    )
