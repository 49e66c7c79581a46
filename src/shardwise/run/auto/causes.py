"""Why a split trains otherwise than one process: what the program itself does that ranks cannot do alike.

Each cause is tried in one process on the program as it is, so a NO names what to change.
"""

from collections.abc import Callable, Sequence

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from shardwise.run.auto.draws import draws_begin
from shardwise.run.auto.plan import Degrees
from shardwise.run.auto.program import UserProgram, forward_loss
from shardwise.run.auto.watch import losses_of, part_of
from shardwise.run.auto.wide import comparable

TRIED = 3
"""batches"""
SEEDS = 8
"""tried, until one gives another loss"""


def cause_of(program: UserProgram, degrees: Degrees, tolerance: float, side_effects: Sequence[str] = ()) -> str:
    """Empty where none of the known causes shows. `side_effects`: lines of a step that do more than train."""
    tests: tuple[Callable[[UserProgram, Degrees, float], str], ...] = (_global_state, _chance, _no_mean)
    found = next(filter(None, (test(program, degrees, tolerance) for test in tests)), "")
    line = next((line for line in side_effects if line.endswith("after backward")), "")
    if not found and line:
        return (
            f"{line}, reads or changes parameters or gradients itself, and a rank holds a share of them; use "
            "torch.nn.utils.clip_grad_norm_, or return what is kept from build()"
        )
    return found


def _loss(program: UserProgram, batch: object, seed: int = 0) -> float:
    own = program.copy()
    with torch.random.fork_rng(devices=[]), comparable(wide=own.dtype == "float64"):
        torch.manual_seed(seed)
        return forward_loss(own, batch)


def _first_losses(program: UserProgram) -> list[float]:
    """Of two whole steps."""
    own, losses = program.copy(), list[float]()
    with draws_begin(), comparable(wide=own.dtype == "float64"):
        for batch in own.batches[:2]:
            with losses_of() as found:
                own.step(*own.parts, batch)
            losses.append(sum(found))
    return losses


def _apart(one: float, other: float, tolerance: float) -> bool:
    return not abs(one - other) <= tolerance * max(abs(one), abs(other))


def _global_state(program: UserProgram, _: Degrees, tolerance: float) -> str:
    pairs = zip(_first_losses(program), _first_losses(program), strict=True)
    if any(_apart(one, other, tolerance) for one, other in pairs):
        return (
            "the step reads something that changes from call to call outside what build() returns (a global, a closure "
            "or a clock); return it from build()"
        )
    return ""


def _chance(program: UserProgram, _: Degrees, tolerance: float) -> str:
    batch = program.batches[0]
    first = _loss(program, batch, 0)
    if any(_apart(first, _loss(program, batch, seed), tolerance) for seed in range(1, SEEDS)):
        return (
            "the step draws random numbers that are not a row a sample, or inside what is split, so that ranks draw "
            "others than one process; draw them in batch()"
        )
    return ""


def _no_mean(program: UserProgram, degrees: Degrees, tolerance: float) -> str:
    parts = degrees.dp * degrees.micro_batches
    for batch in program.batches[:TRIED] if parts > 1 else ():
        whole = _loss(program, batch)
        mean = sum(_loss(program, part_of(batch, place, parts)) for place in range(parts)) / parts
        if not _apart(whole, mean, tolerance):
            continue
        if any(isinstance(module, _BatchNorm) for module in program.model.modules()):
            return "BatchNorm takes statistics of the samples of one rank; write a norm of single samples"
        gap = abs(mean / whole - 1) if whole else abs(mean)
        return (
            f"the loss of a batch is not the mean of the losses of its {parts} parts ({gap:.2g} apart): it sums over "
            "samples, or averages over tokens whose number differs between samples, or compares samples with each "
            "other; write a mean over samples"
        )
    return ""
