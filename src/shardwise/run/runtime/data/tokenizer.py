"""Text to tokens: byte by byte, or by a tokenizer of Hugging Face's `tokenizers` package."""

import hashlib
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

MOST_BYTES = 64 * 2**20
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")
"""tokens that end a document, as the common families spell them"""


class Tokenizer(Protocol):
    key: str
    """what it is, for the name of a cache: equal keys give equal tokens"""
    dtype: type[np.unsignedinteger[Any]]

    def encode(self, texts: Sequence[str]) -> list[NDArray[Any]]:
        """The tokens of each."""

    def end(self) -> int | None:
        """The token between two files, if there is one."""


class HuggingFace:
    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.key = hashlib.sha256(inner.to_str().encode()).hexdigest()
        self.dtype = np.uint16 if inner.get_vocab_size() <= 1 << 16 else np.uint32

    def encode(self, texts: Sequence[str]) -> list[NDArray[Any]]:
        found = self.inner.encode_batch(list(texts), add_special_tokens=False)
        return [np.asarray(one.ids, dtype=self.dtype) for one in found]

    def end(self) -> int | None:
        ids = (self.inner.token_to_id(text) for text in ENDS)
        return next((int(one) for one in ids if one is not None), None)


def tokenizer_of(name: str) -> Tokenizer:
    """A tokenizer.json, the folder that holds one, or a name the package knows or fetches."""
    if find_spec("tokenizers") is None:
        raise ValueError(
            f"tokenizer: {name!r} needs the tokenizers package, which is not installed; "
            "write pip install tokenizers, or --tokenizer byte"
        )
    inner: Any = import_module("tokenizers").Tokenizer
    path = Path(name)
    path = path / "tokenizer.json" if path.is_dir() else path
    if path.is_file():
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"tokenizer: {name!r} is larger than {MOST_BYTES // 2**20} MiB; write a tokenizer.json")
        return HuggingFace(_made(name, lambda: inner.from_str(path.read_text(encoding="utf-8"))))
    if name.endswith(".json") or name.startswith((".", "/")):
        raise ValueError(f"tokenizer: there is no file {name!r}; write byte or the path of a tokenizer.json")
    return HuggingFace(_made(name, lambda: inner.from_pretrained(name)))


def _made(name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    # the package raises bare Exceptions for whatever it cannot read or fetch
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise ValueError(
            f"tokenizer: {name!r} cannot be read ({reason}); write byte or the path of a tokenizer.json"
        ) from None
