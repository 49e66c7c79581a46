"""Pictures of digits for a perceptron: drawn here, so that nothing is downloaded, or read from a file.

A digit is its seven segments, moved, thickened and covered with noise; where the model asks for other widths or
classes, a class is a random pattern instead. Sample i follows from the seed and i alone.
"""

import io
import zipfile
from importlib import import_module
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shardwise.fields import read_file
from shardwise.run.runtime.data.shuffled import ShuffleOrder
from shardwise.run.runtime.data.source import fingerprint_of, spread
from shardwise.spec.model import Model

_LIT = ("abcefg", "cf", "acdeg", "acdfg", "bcdf", "abdfg", "abdefg", "acf", "abcdefg", "abcdfg")
_BARS = {  # top, bottom, left, right in units of the picture's side
    "a": (0.15, 0.22, 0.30, 0.70), "b": (0.15, 0.50, 0.30, 0.37), "c": (0.15, 0.50, 0.63, 0.70),
    "d": (0.46, 0.54, 0.30, 0.70), "e": (0.50, 0.85, 0.30, 0.37), "f": (0.50, 0.85, 0.63, 0.70),
    "g": (0.78, 0.85, 0.30, 0.70),
}  # fmt: skip
MOST_BYTES = 2**28
"""of a file of examples, packed and unpacked: all pictures of MNIST have 47 million"""
NOISE, FLIPPED = 0.35, 0.03
_HELD_OUT = 1 << 40
"""numbers of drawn samples that are never trained on begin here"""


def drawn_classes(classes: int, width: int, seed: int) -> NDArray[np.float32]:
    """One picture of each class."""
    side = isqrt(width)
    if classes > len(_LIT) or side * side != width or side < 8:
        return np.random.default_rng(seed).standard_normal((classes, width)).astype(np.float32)
    pictures = np.zeros((classes, side, side), dtype=np.float32)
    for digit in range(classes):
        for bar in _LIT[digit]:
            top, bottom, left, right = (round(edge * side) for edge in _BARS[bar])
            pictures[digit, top : max(bottom, top + 1), left : max(right, left + 1)] = 1.0
    return pictures.reshape(classes, width)


class MadeUpDigits:
    def __init__(self, model: Model, seed: int, *, held_out: bool = False) -> None:
        self.classes, self.width, self.seed = model.vocab, model.input_width, seed
        self.pictures = drawn_classes(model.vocab, model.input_width, seed)
        self.first = _HELD_OUT if held_out else 0

    def _one(self, index: int) -> tuple[NDArray[np.float32], int]:
        draw = np.random.default_rng([self.seed, self.first + index])
        label = int(draw.integers(self.classes))
        picture, side = self.pictures[label], isqrt(self.width)
        if side * side == self.width:
            moved = (int(draw.integers(-1, 2)), int(draw.integers(-1, 2)))
            picture = np.roll(picture.reshape(side, side), moved, axis=(0, 1)).reshape(-1)
        noisy = picture + NOISE * draw.standard_normal(self.width, dtype=np.float32)
        # some labels are wrong, as in any collection made by hand
        return noisy, int(draw.integers(self.classes)) if draw.random() < FLIPPED else label

    def batch(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        found = [self._one(first + i) for i in range(count)]
        pixels = torch.from_numpy(np.stack([pixels for pixels, _ in found])).unsqueeze(0)
        return pixels, torch.tensor([[label for _, label in found]])

    def fingerprint(self) -> str:
        return f"drawn here, {self.classes} classes of {self.width}"


class DigitRows:
    """Rows of an array, every epoch newly shuffled."""

    def __init__(self, pixels: NDArray[np.float32], labels: NDArray[np.int64], seed: int) -> None:
        self.pixels, self.labels, self.order = pixels, labels, ShuffleOrder(len(labels), seed)

    def batch(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        chosen = [self.order.row(index) for index in range(first, first + count)]
        return torch.from_numpy(self.pixels[chosen]).unsqueeze(0), torch.from_numpy(self.labels[chosen]).unsqueeze(0)

    def fingerprint(self) -> str:
        rows = spread(len(self.labels))
        return fingerprint_of(len(self.labels), (self.pixels[rows], self.labels[rows]))


def examples_of(model: Model, data: tuple[str, ...], seed: int, *, part: str, field: str) -> "MadeUpDigits | DigitRows":
    """`data`: a .npz with arrays x and y, or `digits`: scikit-learn's; none: drawn."""
    if not data:
        return MadeUpDigits(model, seed, held_out=part == "held out")
    if len(data) > 1:
        raise ValueError(f"{field}: {len(data)} files of examples; write one .npz with arrays x and y")
    pixels, labels = _sklearn(field) if data[0] == "digits" else _read(data[0], field)
    _fits(model, pixels, labels, field)
    kept = max(len(labels) // 20, 1) if part != "all" else 0
    rows = slice(len(labels) - kept, None) if part == "held out" else slice(0, len(labels) - kept)
    return DigitRows(pixels[rows], labels[rows], seed)


def _read(name: str, field: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    raw = read_file(Path(name), field, MOST_BYTES, "a .npz with arrays x and y")
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as packed:
            size = sum(member.file_size for member in packed.infolist())
        if size > MOST_BYTES:
            raise ValueError(f"it unpacks to {size:,} bytes, more than {MOST_BYTES:,}")
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            x, y = file["x"], file["y"]
            pixels = x.reshape(len(x), -1).astype(np.float32)
            pixels /= 255.0 if x.dtype == np.uint8 else 1.0  # in its place: a copy would be as large again
            return pixels, y.astype(np.int64)
    # numpy and zipfile have a dozen ways to say that a damaged file is none
    except Exception as error:
        raise ValueError(f"{field}: {name!r} cannot be read ({error}); write a .npz with arrays x and y") from None


def _sklearn(field: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    try:
        found: Any = import_module("sklearn.datasets").load_digits()
    except ImportError:
        raise ValueError(
            f"{field}: digits needs scikit-learn, which is not installed; write pip install scikit-learn, or nothing "
            "for drawn digits"
        ) from None
    return (found.data / 16.0).astype(np.float32), found.target.astype(np.int64)


def _fits(model: Model, pixels: NDArray[np.float32], labels: NDArray[np.int64], field: str) -> None:
    if pixels.ndim != 2 or len(pixels) != len(labels) or len(labels) < 2 or labels.ndim != 1:
        raise ValueError(f"{field}: x has shape {pixels.shape} and y {labels.shape}; write as many rows in both")
    if pixels.shape[1] != model.input_width:
        raise ValueError(
            f"{field}: {pixels.shape[1]} features an example, the model reads {model.input_width}; "
            f"write a model whose layer_sizes begin with {pixels.shape[1]}"
        )
    if not 0 <= labels.min() <= labels.max() < model.vocab:
        raise ValueError(
            f"{field}: labels {labels.min()} to {labels.max()}, the model has {model.vocab} outputs; "
            f"write labels from 0 to {model.vocab - 1}"
        )
