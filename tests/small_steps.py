"""Small pipelines with costs written by hand."""

from dataclasses import replace

import numpy as np

from shardwise.step.simulate.costs import Costs, RankMemory
from shardwise.step.simulate.spans import compute_rows, joined
from shardwise.step.simulate.timeline import MEMORY, MemorySteps, Timeline
from shardwise.step.tasks.engine import EngineRun, run
from shardwise.step.tasks.program import BACKWARD, Program, program_of


def costs(program: Program, forward=1.0, back=1.0, weight=1.0, **given) -> Costs:
    """Every piece alike, nothing to send, nothing else to do; `given` replaces what it names."""
    shape, zero = program.held.shape, np.zeros(program.stages)
    plain = Costs(
        forward=zero + forward,
        backward=zero + back + weight,
        input_gradient=zero + back,
        weight_gradient=zero + weight,
        recompute=zero,
        streams={},
        copy_s=zero,
        copy_bytes=zero,
        transfer_s=0.0,
        transfer_overhead_s=0.0,
        stopped_share=1.0,
        exposed_transfer=1.0,
        reduce_s=np.zeros(shape),
        reduces_each=False,
        gather_s=np.zeros(shape),
        overlap_grad=True,
        overlap_param=True,
        hidden_share=1.0,
        slowdown=0.0,
        optimizer_s=np.zeros(program.pp),
        other_share=0.0,
        other_s=0.0,
        held=RankMemory(
            static={kind: np.zeros(program.pp) for kind in MEMORY},
            saved=np.ones(shape),
            deferred=np.full(shape, 32 / 34),
            once=np.zeros(program.pp),
            logits=np.zeros(program.pp),
            piles_up=False,
            fragmentation=0.0,
        ),
    )
    return replace(plain, **given)


def unit_run(name: str, pp: int, vpp: int, micro_batches: int) -> tuple[Program, EngineRun]:
    """Forward, input gradient and weight gradient take one unit each; transfers are free."""
    program = program_of(name, pp, vpp, micro_batches)
    duration = np.where(program.kind == BACKWARD, 2.0, 1.0)
    return program, run(program.tasks, duration, np.zeros(len(program.need_source)), np.zeros(len(duration)))


def timeline_of(program: Program, found: EngineRun, step_s: float | None = None) -> Timeline:
    none = np.zeros(0)
    index = np.zeros(0, dtype=np.int64)
    return Timeline(
        spans=joined([compute_rows(program, found, np.arange(program.pp))]),
        memory=MemorySteps(rank=index, time_s=none, kind=index, bytes=none),
        stage=np.arange(program.pp),
        gpus=np.ones(program.pp, dtype=np.int64),
        step_s=float(found.end.max()) if step_s is None else step_s,
    )
