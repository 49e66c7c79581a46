"""Blocks cover a tensor once and whole, or the first elements that they do not are named."""

import numpy as np
import pytest

from shardwise.run.runtime.checkpoints.cover import uncovered


def tiled(draw: np.random.Generator, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """A tensor cut in two again and again, along any axis."""
    blocks = [((0,) * len(shape), shape)]
    for _ in range(int(draw.integers(0, 6))):
        at, sizes = blocks.pop(int(draw.integers(len(blocks))))
        axis = int(draw.integers(len(shape)))
        if sizes[axis] < 2:
            blocks.append((at, sizes))
            continue
        first = int(draw.integers(1, sizes[axis]))
        rest = tuple(n - first if k == axis else n for k, n in enumerate(sizes))
        blocks.append((at, tuple(first if k == axis else n for k, n in enumerate(sizes))))
        blocks.append((tuple(n + first if k == axis else n for k, n in enumerate(at)), rest))
    return blocks


def counts(shape, blocks) -> np.ndarray:
    found = np.zeros(shape, int)
    for at, sizes in blocks:
        found[tuple(slice(a, a + n) for a, n in zip(at, sizes, strict=True))] += 1
    return found


def test_as_by_counting_every_element() -> None:
    draw = np.random.default_rng(1)
    wrong = 0
    for _ in range(1500):
        shape = tuple(int(n) for n in draw.integers(1, 7, int(draw.integers(1, 4))))
        blocks = tiled(draw, shape)
        for _ in range(int(draw.integers(0, 3))):
            number = int(draw.integers(len(blocks)))
            if draw.random() < 0.5:
                blocks.append(blocks[number])
            elif len(blocks) > 1:
                blocks.pop(number)
        found = counts(shape, blocks)
        said = uncovered(shape, blocks)
        assert bool(said) is bool((found != 1).any())
        if said:
            wrong += 1
            first = tuple(int(part.split(":")[0]) for part in said[1 : said.index("]")].split(", "))
            times = 0 if "is missing" in said else int(said.split()[-2])
            assert found[first] == times != 1
    assert wrong > 300


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ([((0, 0), (2, 3)), ((2, 0), (2, 3))], ""),
        ([((0, 0), (2, 3))], "[2:4, 0:3] is missing"),
        ([((0, 0), (4, 3)), ((1, 1), (2, 1))], "[1:3, 1:2] is there 2 times"),
        ([((0, 0), (4, 1)), ((0, 2), (4, 1))], "[0:4, 1:2] is missing"),
        ([], "[0:4, 0:3] is missing"),
    ],
)
def test_what_is_said(blocks, said: str) -> None:
    assert uncovered((4, 3), blocks) == said


def test_one_number_and_none() -> None:
    assert uncovered((), [((), ())]) == ""
    assert uncovered((), []) == " is missing"
    assert uncovered((), [((), ())] * 3) == " is there 3 times"
    assert uncovered((0, 5), []) == ""
