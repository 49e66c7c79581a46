"""A user's training program: what its file builds, its step, its batches."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace
from torch import nn

from shardwise.run.auto.blocks import until_backward
from shardwise.run.auto.draws import DrawsOfAll
from shardwise.run.auto.means import means_over
from shardwise.run.auto.meshes import batch_mesh
from shardwise.run.auto.norms import Clip, clip_whole, norm_over_ranks
from shardwise.run.auto.plan import AutoPlan, Degrees
from shardwise.run.auto.split import Applied
from shardwise.run.auto.watch import losses_of, samples_of
from shardwise.run.auto.wide import widened

if TYPE_CHECKING:
    from shardwise.run.auto.loop import ScriptLoop

Step = Callable[..., object]


@dataclass
class UserProgram:
    """A user's training program: what `build` gave, the step, and the batches of so many steps."""

    parts: tuple[Any, ...]
    step: Step
    batches: list[Any]
    dtype: str = "float64"
    loop: "ScriptLoop | None" = None
    """the script, where it has no functions for its parts but runs from top to bottom"""

    @property
    def model(self) -> nn.Module:
        return next(part for part in self.parts if isinstance(part, nn.Module))

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        return [part for part in self.parts if isinstance(part, torch.optim.Optimizer)]

    @property
    def samples(self) -> int:
        """Of a whole step."""
        return samples_of(self.batches[0])

    def told(self, plan: AutoPlan) -> AutoPlan:
        """A plan whose elements were counted on the first batch, for a whole step."""
        if self.loop is None:
            return plan
        return replace(plan, token_means=self.loop.token_means, roots=self.loop.roots)

    def cannot(self, degrees: Degrees) -> str:
        """Empty, or why it does not run so."""
        if self.loop is not None and degrees.pp > 1:
            return (
                "stages run the step once for every micro-batch, and this script runs from top to bottom; write the "
                "functions build, batch and step"
            )
        return ""

    def copy(self) -> "UserProgram":
        return UserProgram(copy.deepcopy(self.parts), self.step, self.batches, self.dtype, self.loop)


def program_of(build: Step, batch: Callable[[], Any], step: Step, steps: int, dtype: str) -> UserProgram:
    torch.manual_seed(0)
    built = build()
    parts = built if isinstance(built, tuple) else (built,)
    program = UserProgram(parts, step, [batch() for _ in range(steps + 1)], dtype)
    if dtype == "float64":
        for part in program.parts:
            if isinstance(part, nn.Module):
                part.double()
        program.parts = tuple(widened(part) if isinstance(part, dict | list) else part for part in program.parts)
        program.batches = widened(program.batches)
    return program


def forward_loss(program: UserProgram, batch: Any) -> float:
    with until_backward() as losses:
        program.step(*program.parts, batch)
    return float(losses[0].detach()) if losses else 0.0


def run_step(done: Applied, program: UserProgram, batch: Any, clips: list[Clip]) -> float | None:
    """One training step of this rank; its loss, where this rank sees one."""
    if done.stage is None:
        norm_over_ranks(done)
        ranks = batch_mesh(done.mesh)
        drawn = DrawsOfAll(ranks.get_local_rank(), ranks.size(), samples_of(batch))
        with losses_of() as losses, means_over(done.plan, ranks), drawn if ranks.size() > 1 else nullcontext():
            program.step(*program.parts, batch)
        return sum(losses)
    found = done.stage.run(program.step, program.parts, batch)
    done.stage.sum_ends()
    for clip in clips:
        clip_whole(done, clip)
    for part in program.parts:
        if isinstance(part, torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler):
            part.step()
    done.model.zero_grad()
    return sum(found) / len(found) if found else None
