"""Files that are there when they are whole: written beside and moved."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def moved_to(path: Path) -> Iterator[BinaryIO]:
    """Readable for whom the user's files are; a name of its own, so that ranks that race do not meet."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with beside.open("xb") as file:
            yield file
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
