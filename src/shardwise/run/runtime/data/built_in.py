"""A text to train on when none is given."""

import random
from functools import cache
from pathlib import Path

from shardwise.whole_file import moved_to

_NAMES = "the miner, the pilot, a nurse, the baker, an old clerk, the diver, my sister, the judge, a sailor, the twins"
_DEEDS = "counts, carries, loses, mends, paints, weighs, hides, sells, measures, repairs"
_THINGS = "red boxes, wet ropes, loud bells, thin maps, brass keys, green lamps, old letters, glass jars, warm coats"
_WHERE = "by the river, before noon, in the yard, at the station, under the stairs, near the mill, after the rain"


@cache
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


def built_in_corpus(folder: Path, size: int) -> Path:
    """The text above as a file. What is there already may be anyone's, so it is compared."""
    path, text = folder / f"corpus-{size}.txt", built_in_text(size)
    if not path.is_file() or path.read_bytes() != text:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with moved_to(path) as file:
            file.write(text)
    return path
