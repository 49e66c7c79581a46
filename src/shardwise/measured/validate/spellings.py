"""Names of models as people write them: with the organisation before it, with spaces, and with words that tell which
weights are meant and change no shape."""

import re
from collections.abc import Iterator

_WEIGHTS = r"-(?:instruct|chat|base|it|pt|hf|sft|thinking|coder|math|preview|v\d+(?:\.\d+)*|2[3-6](?:0[1-9]|1[0-2]))"
"""tuned, dated or numbered weights: 2507 is a month"""


def spellings(name: str) -> Iterator[str]:
    """In lower case with hyphens alone: the name by itself, then with ever fewer words of its weights."""
    last = name.rsplit("/", 1)[-1].strip().lower()
    left = re.sub(r"[\s_]+", "-", last).removeprefix("meta-")
    yield left
    while (shorter := re.sub(rf"{_WEIGHTS}$", "", left)) != left:
        left = shorter
        yield left
    yield re.sub(rf"{_WEIGHTS}(?=-)", "", left)
