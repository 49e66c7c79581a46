"""The token stream of a run: which files, which tokenizer, which part of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwise.run.runtime.data.built_in import built_in_corpus, built_in_text
from shardwise.run.runtime.data.cache import cached
from shardwise.run.runtime.data.files import files_of
from shardwise.run.runtime.data.tokenizer import tokenizer_of
from shardwise.user_cache import user_cache

BUILT_IN = 1 << 20
"""bytes of the text that is trained on where none is given"""


class TokenFiles:
    """Several memory-mapped files as one run of tokens."""

    def __init__(self, parts: Sequence[NDArray[Any]]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, wanted: slice) -> NDArray[Any]:
        first, end, found = wanted.start, min(wanted.stop, len(self)), []
        index = int(np.searchsorted(self.ends, first, side="right"))
        while first < end:
            start = int(self.ends[index]) - len(self.parts[index])
            stop = min(end, int(self.ends[index]))
            found.append(self.parts[index][first - start : stop - start])
            first, index = stop, index + 1
        return np.concatenate(found)

    def max(self) -> int:
        return max(int(part.max()) for part in self.parts)


Tokens = NDArray[Any] | TokenFiles


def tokens_of(data: Sequence[str], tokenizer: str, cache: str, vocab: int, field: str) -> Tokens:
    """Memory-mapped; every one of them is a token the model knows."""
    if tokenizer == "byte":
        tokens = _bytes(files_of(data, field), field) if data else np.frombuffer(built_in_text(BUILT_IN), np.uint8)
        largest = int(tokens.max()) if vocab < 256 else 0
    else:
        folder = Path(cache) if cache else user_cache("tokens")
        files = files_of(data, field) if data else [built_in_corpus(folder, BUILT_IN)]
        tokens, largest = cached(files, tokenizer_of(tokenizer), folder)
    if largest >= vocab:
        raise ValueError(
            f"{field}: token {largest} is past the model's {vocab:,}; write a model with {largest + 1:,} or more, "
            "or another --tokenizer"
        )
    return tokens


def _bytes(files: Sequence[Path], field: str) -> Tokens:
    try:
        parts = [np.memmap(file, dtype=np.uint8, mode="r") for file in files if file.stat().st_size]
    except (OSError, ValueError) as error:
        raise ValueError(f"{field}: {error}; write the path of a text file") from None
    if not parts:
        raise ValueError(f"{field}: {str(files[0])!r} is empty; write a text file with something in it")
    return parts[0] if len(parts) == 1 else TokenFiles(parts)
