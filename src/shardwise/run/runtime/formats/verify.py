"""Is a checkpoint whole? Every tensor covered once, numbers finite, optimizer state in step with its weights."""

from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from zlib import crc32

import numpy as np

from shardwise.run.runtime.checkpoints.cover import uncovered
from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint
from shardwise.run.runtime.formats.stored import (
    MASTER,
    OTHER,
    PIECE,
    STEP,
    WEIGHT,
    StoredCheckpoint,
    StoredTensor,
    numbers,
    pieces,
    rows_of,
)

MOST_SHOWN = 20
_MANTISSA = {"bfloat16": 7, "float16": 10}
"""bits after the point: rounding to nearest is off by at most half of the last one, cutting off by all of it"""
_SMALLEST = 1e-7
"""where fp16 has no more bits"""


def problems_of(checkpoint: StoredCheckpoint, *, read: Callable[[int], None] | None = None) -> list[str]:
    """Nothing: it is whole. `read`: called with bytes read; None: numbers are not read, only their places."""
    found: list[str] = []
    for problem in _problems(checkpoint, read):
        found.append(problem)
        if len(found) == MOST_SHOWN:
            found.append("and perhaps more: the rest was not read")
            break
    return found


def _problems(checkpoint: StoredCheckpoint, read: Callable[[int], None] | None) -> Iterator[str]:
    if not checkpoint.tensors:
        yield "it holds no tensor"
    sums = _Sums()
    for name, tensor in checkpoint.tensors.items():
        if why := uncovered(tensor.covered_shape, ((b.offsets, b.sizes) for b in tensor.blocks)):
            yield f"{name}{why}"
        elif read is not None and (why := _read_through(tensor, read) or sums.wrong(tensor)):
            yield f"{name} {why}"
    yield from _out_of_step(checkpoint, values=read is not None)


class _Sums:
    """CRC-32 of each storage, once."""

    def __init__(self) -> None:
        self.seen: set[tuple[Path, int]] = set()

    def wrong(self, tensor: StoredTensor) -> str:
        for block in tensor.blocks:
            place = block.place()
            if place.sealed is None or (place.file, place.sealed[0]) in self.seen:
                continue
            self.seen.add((place.file, place.sealed[0]))
            start, left, crc = place.sealed
            found = 0
            with place.file.open("rb") as file:
                file.seek(start)
                while left and (part := file.read(min(left, PIECE))):
                    found, left = crc32(part, found), left - len(part)
            if left or found != crc:
                return f"does not have the checksum that {place.file.name} states"
        return ""


def _read_through(tensor: StoredTensor, read: Callable[[int], None]) -> str:
    try:
        for first, count in pieces(tensor):
            rows = rows_of(tensor, first, count)
            read(rows.nbytes)
            values = numbers(rows, tensor.dtype)
            if tensor.kind != OTHER and values.dtype.kind == "f" and not np.isfinite(values).all():
                return "holds NaN or infinity"
            if tensor.kind == "exp_avg_sq" and values.size and values.min() < 0:
                return "holds a negative second moment"
    except DamagedCheckpoint as why:
        return f"cannot be read: {why}"
    return ""


def _out_of_step(checkpoint: StoredCheckpoint, *, values: bool) -> Iterator[str]:
    """Moments of every weight or of none, in its shape; one number of steps."""
    weights, masters = checkpoint.of_kind(WEIGHT), checkpoint.of_kind(MASTER)
    known = weights or masters
    moments = {kind: checkpoint.of_kind(kind) for kind in (*checkpoint.moments, *((MASTER,) if masters else ()))}
    trained = {name for kind in checkpoint.moments for name in moments[kind]}
    for kind, of_kind in moments.items():
        for name, tensor in of_kind.items():
            if (weight := known.get(name)) is None:
                yield f"{kind} of {name} has no weight of that name"
            elif tensor.shape != weight.shape and prod(tensor.shape) != prod(weight.shape):
                yield f"{kind} of {name} is {list(tensor.shape)}, its weight {list(weight.shape)}"
        if kind != MASTER and (lost := sorted(trained - set(of_kind))):
            yield f"{kind} of {lost[0]} is missing, which has other moments"
    if values:
        yield from _steps(checkpoint, trained)
        for name in sorted(set(weights) & set(masters)):
            if why := _unlike_master(weights[name], masters[name]):
                yield f"{name} {why}"


def _unlike_master(weight: StoredTensor, master: StoredTensor) -> str:
    """A weight in few bits is its fp32 copy rounded: where it is not, the optimizer trains other numbers on."""
    bits = _MANTISSA.get(weight.dtype)
    if bits is None or master.dtype != "float32" or weight.shape != master.shape:
        return ""
    try:
        for first, count in pieces(master):
            few = numbers(rows_of(weight, first, count), weight.dtype).astype(np.float64)
            many = rows_of(master, first, count).astype(np.float64)
            apart = np.abs(few - many) > np.abs(many) * 2.0**-bits + _SMALLEST
            if apart.any():
                return f"differs from its fp32 copy in {int(apart.sum()):,} of {apart.size:,} elements read"
    except DamagedCheckpoint:
        pass
    return ""


def _steps(checkpoint: StoredCheckpoint, trained: set[str]) -> Iterator[str]:
    steps: dict[str, float] = {}
    for name, tensor in checkpoint.of_kind(STEP).items():
        if prod(tensor.shape) == 1:
            try:
                steps[name] = float(numbers(rows_of(tensor, 0, 1), tensor.dtype).reshape(-1)[0])
            except DamagedCheckpoint:
                continue
    if lost := sorted(trained - set(steps)) if steps else []:
        yield f"step of {lost[0]} is missing, which has moments"
    if len(set(steps.values())) > 1:
        usual = max(set(steps.values()), key=list(steps.values()).count)
        name = next(one for one, step in steps.items() if step != usual)
        yield f"optimizer step of {name} is {steps[name]:g}, of most others {usual:g}"


def untrained(checkpoint: StoredCheckpoint) -> list[str]:
    """Weights without moments where others have them: frozen, or lost."""
    trained = {name for kind in checkpoint.moments for name in checkpoint.of_kind(kind)}
    return sorted(set(checkpoint.of_kind(WEIGHT)) - trained) if trained else []
