"""What one process does in the steps of a proof: losses, gradients, settings and buffers that ranks must reproduce."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from shardwise.run.auto.draws import draws_begin
from shardwise.run.auto.effects import side_effects
from shardwise.run.auto.kept import kept_beside
from shardwise.run.auto.memory import held_elements, state_elements
from shardwise.run.auto.norms import Clip, clipping
from shardwise.run.auto.program import UserProgram, forward_loss
from shardwise.run.auto.routing import Choices, choices_seen, routes
from shardwise.run.auto.watch import before_update, losses_of
from shardwise.run.auto.wide import comparable

SETTLED = 1
"""the step that is looked into: in the first one some code still sets itself up"""
LOOKED_AT = 2
"""steps after the last in which memory is followed"""
Settings = frozenset[tuple[tuple[str, float], ...]]
"""numbers of every group of an optimizer: learning rate, decay and the like"""


@dataclass
class Truth:
    """One process: losses, gradients step by step, and the loss of a further batch after the last step."""

    losses: list[float]
    gradients: list[dict[str, Tensor | None]]
    last: float
    clips: list[Clip]
    """what one step asked of `clip_grad_norm_`"""
    moments: float = 0.0
    """numbers that optimizers keep for one of a parameter"""
    choices: list[Choices] = field(default_factory=list)
    """of routers, in the steps after the last in which memory is followed"""
    settings: list[Settings] = field(default_factory=list)
    """of the optimizers at each update"""
    buffers: dict[str, Tensor] = field(default_factory=dict)
    """those of a checkpoint, and what `build` gave beside the model, after the last update"""
    side_effects: list[str] = field(default_factory=list)
    """lines of the second step that stages would not run, or run too often"""
    backwards: int = 1
    """calls of `backward` in one step, the most"""

    draws: bool = False
    """the steps draw random numbers"""

    @property
    def not_finite(self) -> str:
        """Empty, or what is not a finite number in one process, so that nothing can be compared."""
        updates = len(self.gradients) // max(len(self.losses), 1)
        for number, loss in enumerate(self.losses, 1):
            gradients = {n: x for each in self.gradients[(number - 1) * updates :][:updates] for n, x in each.items()}
            wrong = ["the loss"] if not torch.tensor(loss).isfinite() else []
            wrong += [f"the gradient of {name}" for name, x in gradients.items() if x is not None and not finite(x)]
            if wrong:
                return f"{wrong[0]} is not finite in step {number}"
        return next((f"the buffer {name} is not finite" for name, x in self.buffers.items() if not finite(x)), "")


def finite(x: Tensor) -> bool:
    return bool(x.isfinite().all())


def settings_of(optimizers: Iterable[torch.optim.Optimizer]) -> Settings:
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    return frozenset(
        tuple(sorted((name, float(x)) for name, value in group.items() for x in _numbers(value))) for group in groups
    )


def _numbers(value: Any) -> list[Any]:
    if isinstance(value, bool | int | float) or (isinstance(value, Tensor) and value.numel() == 1):
        return [value]
    return [x for x in value if isinstance(x, int | float)] if isinstance(value, tuple) else []


def saved_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Those of a checkpoint."""
    return {
        f"{owner}.{name}" if owner else name: buffer.detach()
        for owner, module in model.named_modules() for name, buffer in module.named_buffers(recurse=False)
        if name not in module._non_persistent_buffers_set
    }  # fmt: skip


def truth_of(program: UserProgram) -> Truth:
    if program.loop is not None:
        return program.loop.truth
    own = program.copy()
    truth = Truth([], [], 0.0, [])

    def look() -> None:
        truth.settings.append(settings_of(own.optimizers))
        truth.gradients.append(
            {n: None if p.grad is None else p.grad.detach().clone() for n, p in own.model.named_parameters()}
        )

    names = {id(p): name for name, p in own.model.named_parameters()}

    def clipped(parameters: list[Tensor], most: float, order: float) -> None:
        truth.clips.append(Clip(most, order, [names[id(p)] for p in parameters if id(p) in names]))

    with draws_begin(), comparable(wide=own.dtype == "float64"), before_update(look), clipping(clipped):
        begin = torch.get_rng_state()
        for number, batch in enumerate(own.batches[:-1]):
            truth.clips.clear()
            with losses_of() as losses, side_effects(own.model, batch, on=number == SETTLED) as effects:
                own.step(*own.parts, batch)
            truth.side_effects += effects
            truth.losses.append(sum(losses))
            truth.backwards = max(truth.backwards, len(losses))
        if not truth.gradients or len(truth.gradients) % len(truth.losses):
            raise ValueError(
                f"step: it made {len(truth.gradients)} optimizer steps in {len(truth.losses)}; write as many in each"
            )
        truth.buffers = {name: buffer.clone() for name, buffer in saved_buffers(own.model).items()}
        truth.buffers |= {label: x.clone() for label, _, x in kept_beside(own) if finite(x)}
        truth.draws = not torch.equal(begin, torch.get_rng_state())
        truth.last = _last_loss(own)
    truth.choices = _choices(own) if routes(own.model) else []
    truth.moments = state_elements(own.optimizers) / max(held_elements(own.model.parameters()), 1)
    return truth


def _last_loss(own: UserProgram) -> float:
    with draws_begin():
        return forward_loss(own, own.batches[-1])


def _choices(own: UserProgram) -> list[Choices]:
    seen = []
    for _ in range(LOOKED_AT):
        with comparable(wide=own.dtype == "float64"), choices_seen(own.model) as choices:
            own.step(*own.parts, own.batches[-1])
        seen.append(choices)
    return seen
