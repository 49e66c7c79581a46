"""A user's program trained by ranks of this machine, split as planned."""

from collections.abc import Callable
from typing import Any

from shardwise.run.auto.kept import split_program
from shardwise.run.auto.meshes import batch_mesh, mesh_of
from shardwise.run.auto.norms import Clip
from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.program import UserProgram, run_step
from shardwise.run.auto.watch import part_of
from shardwise.run.runtime.train.fork import forked


def trained(program: UserProgram, plan: AutoPlan, clips: list[Clip]) -> list[float]:
    """The loss of every step: the mean over ranks that see one."""
    ranks = forked(plan.degrees.ranks, lambda _: _rank(program.copy(), plan, clips))
    told = [losses for losses in ranks if losses]
    return [sum(each) / len(told) for each in zip(*told, strict=True)]


def _rank(program: UserProgram, plan: AutoPlan, clips: list[Clip]) -> list[float]:
    mesh = mesh_of(plan.degrees, "cpu")
    done = split_program(program, plan, mesh)
    place: int = batch_mesh(mesh).get_local_rank()
    found: Callable[[Any], float | None] = lambda batch: run_step(  # noqa: E731
        done, program, part_of(batch, place, plan.degrees.dp), clips
    )
    losses = [found(batch) for batch in program.batches]
    return [loss for loss in losses if loss is not None]
