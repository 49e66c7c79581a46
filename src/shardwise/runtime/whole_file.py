"""Files that are there when they are whole: written beside and moved."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def moved_to(path: Path) -> Iterator[BinaryIO]:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
