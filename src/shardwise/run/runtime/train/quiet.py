"""One process without a process group is what was asked for: DCP need not warn of it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Python's filters are those of all threads, so a checkpoint written in the background is quiet too."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        yield
