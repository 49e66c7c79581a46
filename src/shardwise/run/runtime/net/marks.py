"""What the tensors kept from here on are for, so that memory can be told by kind."""

from collections.abc import Iterator
from contextlib import contextmanager

_now = ["activations"]


def kind_now() -> str:
    return _now[-1]


@contextmanager
def kept_as(kind: str) -> Iterator[None]:
    _now.append(kind)
    try:
        yield
    finally:
        _now.pop()
