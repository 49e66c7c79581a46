"""Configurations that are in no file: handed over in memory by a server that writes none, under the name a command line
has for them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from shardwise.arch._file import MOST_BYTES, parsed_config

_OFFERED: dict[str, str] = {}


@contextmanager
def offered(texts: Mapping[str, str]) -> Iterator[None]:
    """Meanwhile `model_of` reads these texts under these names, before it looks anywhere else."""
    _OFFERED.update(texts)
    try:
        yield
    finally:
        for name in texts:
            _OFFERED.pop(name, None)


def offered_config(name: str) -> dict[str, object] | None:
    text = _OFFERED.get(name)
    if text is None:
        return None
    if len(text) > MOST_BYTES:
        raise ValueError(f"model {name}: more than {MOST_BYTES:,} bytes; write a config.json")
    return parsed_config(text.encode(), name)
