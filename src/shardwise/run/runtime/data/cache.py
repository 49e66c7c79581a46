"""Tokenized text on disk: NAME.bin holds the tokens, NAME.json says what they are. Both are written beside and moved,
the header last, so that a header always has its tokens."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shardwise.run.runtime.data.tokenizer import Tokenizer
from shardwise.whole_file import moved_to

FORM = "shardwise tokens 2"
PIECE = 1 << 20
"""characters tokenized at once, up to the end of a line"""


class Header(Struct, frozen=True, kw_only=True):
    form: str
    dtype: str
    tokens: int
    largest: int
    """the highest token there is"""
    sha256: str
    """of the tokens: a folder may be shared, and a disk may be wrong"""
    files: tuple[str, ...]


def key_of(files: Sequence[Path], tokenizer: Tokenizer) -> str:
    """Changes with the tokenizer and with the name, size or time of any file."""
    known = hashlib.sha256(f"{FORM}\n{tokenizer.key}\n".encode())
    for file in files:
        state = file.stat()
        known.update(f"{file.resolve()}\n{state.st_size}\n{state.st_mtime_ns}\n".encode())
    return known.hexdigest()[:32]


def cached(files: Sequence[Path], tokenizer: Tokenizer, folder: Path) -> tuple[NDArray[Any], int]:
    """The tokens of all files, one after another, memory-mapped, and the highest of them; written once."""
    try:
        stem = folder / f"tokens-{key_of(files, tokenizer)}"
        header = _header(stem)
        if header is None:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            header = _written(files, tokenizer, stem)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"data: {error}; write UTF-8 text files, and --token-cache with a folder of yours") from None
    return np.memmap(stem.with_suffix(".bin"), dtype=header.dtype, mode="r"), header.largest


def _header(stem: Path) -> Header | None:
    """None where there is none, or its tokens are not those that were written."""
    try:
        found = msgspec.json.decode(stem.with_suffix(".json").read_bytes(), type=Header)
        tokens = stem.with_suffix(".bin")
        size = tokens.stat().st_size
        known = found.form == FORM and found.dtype in ("uint16", "uint32")
        if not known or size != found.tokens * np.dtype(found.dtype).itemsize:
            return None
        with tokens.open("rb") as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == found.sha256
    except (OSError, ValueError, RecursionError):
        return None
    return found if same else None


def _written(files: Sequence[Path], tokenizer: Tokenizer, stem: Path) -> Header:
    known, tokens, largest, size = hashlib.sha256(), 0, 0, sum(file.stat().st_size for file in files)
    with moved_to(stem.with_suffix(".bin")) as out:
        for number, file in enumerate(files):
            if sys.stderr.isatty():
                print(f"tokenizing {number + 1} of {len(files)} files, {size:,} bytes in all", file=sys.stderr)
            for ids in _encoded(file, tokenizer):
                out.write(ids.tobytes())
                known.update(ids.tobytes())
                tokens += len(ids)
                largest = max(largest, int(ids.max(initial=0)))
    header = Header(
        form=FORM, dtype=np.dtype(tokenizer.dtype).name, tokens=tokens, largest=largest,
        sha256=known.hexdigest(), files=tuple(str(file) for file in files),
    )  # fmt: skip
    with moved_to(stem.with_suffix(".json")) as out:
        out.write(msgspec.json.encode(header))
    return header


def _encoded(file: Path, tokenizer: Tokenizer) -> Iterator[NDArray[Any]]:
    with file.open(encoding="utf-8", newline="") as text:
        while lines := text.readlines(PIECE):
            yield from tokenizer.encode(["".join(lines)])
    end = tokenizer.end()
    if end is not None:
        yield np.asarray([end], dtype=tokenizer.dtype)
