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


def write_whole(path: Path, content: bytes, what: str) -> None:
    """`what`: the flag that named the file, for the message where it cannot be written."""
    if path.is_dir():
        raise ValueError(f"{what}: {str(path)!r} is a folder; write the path of a file, or '-' for stdout")
    try:
        with moved_to(path) as file:
            file.write(content)
    except OSError as error:
        raise ValueError(f"{what}: {str(path)!r} cannot be written ({error.strerror}); write another path") from None
