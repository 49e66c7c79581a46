"""A model too large to be built here, with values in one block of each kind: enough to see what can be cut.

The user's own outer code runs, so masks, angles and conditions are theirs. Blocks that are like the first are passed
by, large tables and heads answer from a few rows, and the batch has few samples and tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shardwise.run.auto.blocks import BlockKind, block_kinds, returned_form, until_backward
from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.program import UserProgram
from shardwise.run.auto.room import refuse_tried
from shardwise.run.auto.shorter import Extent, extent_of, for_the_whole, shorter
from shardwise.run.auto.trial import stacked
from shardwise.run.auto.wide import comparable, widened
from shardwise.run.trace.script import ScriptError

MOST_OUTSIDE = 2**22
"""numbers of a weight outside the blocks that is filled; larger ones answer from a few rows"""
ROWS = 256
LEAST_BYTES = 4 * 2
"""a parameter that is filled and run in 32 bits; whether cuts of it are tried is asked apart"""
MOST_WORK = 1e12
"""multiplications of one run of the blocks that have values"""


@dataclass
class Skeleton(UserProgram):
    """Runs forward, on a shorter batch. It is never trained, so that copies of it need not be made."""

    have: Extent = field(default_factory=lambda: Extent(1, 0))
    want: Extent = field(default_factory=lambda: Extent(1, 0))

    @property
    def samples(self) -> int:
        return self.want.samples

    def copy(self) -> "Skeleton":
        return self

    def told(self, plan: AutoPlan) -> AutoPlan:
        return for_the_whole(plan, self.have, self.want)


class NotShorter(ScriptError):
    """Its code does not take fewer tokens than it was written for."""


def skeleton_of(outline: UserProgram, want: Extent | None = None) -> Skeleton:
    """`outline`: a program without weights, which gets some: in 64 bits, where they fit. `want`: the extent of a whole
    step, where its batch is not that of one."""
    model = outline.model
    kinds = block_kinds(model)
    size = sum(p.numel() for p in model.parameters())
    if not kinds:
        raise ScriptError(f"model: {size:,} parameters and no module repeats; write smaller sizes")
    work = sum(_size(kind.first) for kind in kinds)
    dtype = "float32" if refuse_tried("", work) else "float64"
    why = refuse_tried(f"the first of each kind of block ({', '.join(k.class_name for k in kinds)})", work, LEAST_BYTES)
    if why:
        raise ScriptError(f"model: {why}")
    model.to(getattr(torch, dtype))
    _give_values(model, kinds)
    batch = widened(outline.batches[0]) if dtype == "float64" else outline.batches[0]
    experts = any(stacked(module) for kind in kinds for module in kind.first.modules())
    failed: Exception | None = None
    for few, have in shorter(batch, experts):
        if failed is not None and work * have.rows > MOST_WORK:
            break
        found = Skeleton(outline.parts, outline.step, [few], dtype, have=have, want=want or extent_of(batch))
        try:
            _run(found)
        except Exception as error:  # code that wants the tokens it was written for
            failed = error
        else:
            return found
    reason = str(failed).strip().splitlines()[0][:120] if failed is not None and str(failed).strip() else repr(failed)
    raise NotShorter(
        f"model: {size:,} parameters are looked at on a shorter batch, on which it does not run ({reason}); write a "
        "model that takes fewer tokens, or smaller sizes"
    )


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _run(program: UserProgram) -> None:
    with comparable(wide=program.dtype == "float64"), until_backward():
        program.step(*program.parts, program.batches[0])


def _give_values(model: nn.Module, kinds: list[BlockKind]) -> None:
    generator = torch.Generator().manual_seed(0)
    inside = {id(p) for kind in kinds for p in kind.first.parameters()}
    blocks = {id(p) for kind in kinds for name in kind.names for p in model.get_submodule(name).parameters()}
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in made:
                small = id(parameter) not in blocks and parameter.numel() <= MOST_OUTSIDE
                filled = id(parameter) in inside or small
                values = _filled(name, parameter, generator) if filled else _empty(parameter)
                made[id(parameter)] = nn.Parameter(values, parameter.requires_grad)
                if not filled and id(parameter) not in blocks:
                    _answer_from_few(module, generator)
            elif made[id(parameter)].stride() == (0,) * parameter.dim():
                _answer_from_few(module, generator)  # a head that shares a table
            module._parameters[name] = made[id(parameter)]
    for kind in kinds:
        form: dict[str, int] = {}
        kind.first.register_forward_hook(_remembers(form))
        for name in kind.names[1:]:
            model.get_submodule(name).forward = _passes_by(form)


def _filled(name: str, parameter: Tensor, generator: torch.Generator) -> Tensor:
    values = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    if parameter.dim() > 1:
        return values.div_(parameter.shape[-1] ** 0.5)
    return values.mul_(0.1).add_(0.0 if name == "bias" else 1.0)


def _empty(parameter: Tensor) -> Tensor:
    """As large, and one number in memory."""
    return torch.zeros((), dtype=parameter.dtype).expand(parameter.shape)


def _answer_from_few(module: nn.Module, generator: torch.Generator) -> None:
    if isinstance(module, nn.Embedding):
        table = torch.randn(min(ROWS, module.num_embeddings), module.embedding_dim, generator=generator,
                            dtype=module.weight.dtype).mul_(0.1)  # fmt: skip
        module.forward = _looked_up(  # type: ignore[method-assign,assignment]
            table.requires_grad_(module.weight.requires_grad)
        )
    elif isinstance(module, nn.Linear):
        rows = min(ROWS, module.out_features)
        few = torch.randn(rows, module.in_features, generator=generator, dtype=module.weight.dtype)
        places = torch.arange(module.out_features) % rows
        module.forward = _multiplied(few.div_(module.in_features**0.5), places)  # type: ignore[method-assign,assignment]


def _looked_up(table: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda words: F.embedding(words % table.shape[0], table)


def _multiplied(few: Tensor, places: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: F.linear(x, few)[..., places]


def _remembers(form: dict[str, int]) -> Callable[..., None]:
    def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        form["returns"] = returned_form(output)

    return hook


def _passes_by(form: dict[str, int]) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        x = next(each for each in (*args, *kwargs.values()) if isinstance(each, Tensor) and each.is_floating_point())
        returns = form.get("returns", 0)
        if returns < 0:
            raise ValueError("a block returns neither a tensor nor values that begin with one")
        return x if not returns else (x, *[None] * (returns - 1))

    return forward
