"""Tokens: a byte-level, memory-mapped text, cut into windows that are dealt out in an order anyone can repeat."""

import os
import random
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]

_NAMES = "the miner, the pilot, a nurse, the baker, an old clerk, the diver, my sister, the judge, a sailor, the twins"
_DEEDS = "counts, carries, loses, mends, paints, weighs, hides, sells, measures, repairs"
_THINGS = "red boxes, wet ropes, loud bells, thin maps, brass keys, green lamps, old letters, glass jars, warm coats"
_WHERE = "by the river, before noon, in the yard, at the station, under the stairs, near the mill, after the rain"


def built_in_text(size: int, seed: int = 0) -> bytes:
    """Plain sentences and sums with regularities a small model can learn; ASCII."""
    draw = random.Random(seed)
    pools = [pool.split(", ") for pool in (_NAMES, _DEEDS, _THINGS, _WHERE)]
    pieces: list[str] = []
    length = 0
    while length < size:
        if draw.random() < 0.25:
            a, b = draw.randrange(50), draw.randrange(50)
            piece = f"{a} plus {b} makes {a + b}. "
        else:
            who, does, what, where = (draw.choice(pool) for pool in pools)
            piece = f"{who} {does} {draw.randrange(2, 10)} {what} {where}. "
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces).encode()[:size]


def built_in_corpus(folder: Path, size: int = 1 << 20) -> Path:
    """The text above as a file, written once; ranks that race write the same bytes."""
    path = folder / f"corpus-{size}.txt"
    if not path.exists() or path.stat().st_size != size:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(built_in_text(size))
        os.replace(name, path)
    return path


class ByteWindows:
    """Sample i of an endless stream: a window of seq + 1 bytes. Every epoch visits each window once, newly shuffled."""

    def __init__(self, path: Path, seq: int, vocab: int, seed: int) -> None:
        try:
            self.bytes = np.memmap(path, dtype=np.uint8, mode="r")
        except (OSError, ValueError) as error:
            raise ValueError(f"data: {str(path)!r} cannot be read ({error}); write the path of a text file") from None
        self.seq, self.seed = seq, seed
        self.windows = (len(self.bytes) - 1) // seq
        if self.windows < 1:
            raise ValueError(f"data: {str(path)!r} has {len(self.bytes):,} bytes; seq {seq} needs at least {seq + 1}")
        largest = int(self.bytes.max())
        if largest >= vocab:
            raise ValueError(f"data: byte {largest} is past the model's {vocab} tokens; write a model with 256 or more")
        self._epoch = -1
        self._order: Tokens = np.zeros(0, dtype=np.int64)

    def sample(self, index: int) -> Tokens:
        epoch, place = divmod(index, self.windows)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.windows)
        first = int(self._order[place]) * self.seq
        return np.asarray(self.bytes[first : first + self.seq + 1], dtype=np.int64)
