"""Writes files atomically: to a temporary file, then moved. Files that are not ours to replace stay as they are."""

import errno
import gzip
import os
import stat
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

HEAD = 4096
"""bytes of a file in which its mark stands, if it is ours"""
STREAMS = ("/dev/", "/proc/")
"""a file that is open already may stand behind a name in here: to replace it would leave its reader without"""


@contextmanager
def moved_to(path: Path) -> Iterator[BinaryIO]:
    """Readable for whom the user's files are; a name of its own, so that ranks that race do not meet. Behind a symbolic
    link the file is replaced, not the link."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with beside.open("xb") as file:
            yield file
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class OutputFile:
    """A file the user asked for, checked when it is named, before anything long has been done for it.

    A device or a pipe is written into. A file is replaced only if it is empty, bears the mark of what shardwise writes
    there, or the user says so.
    """

    path: Path
    flag: str
    """that named it"""
    mark: bytes
    """in the first bytes of every such file that shardwise writes"""
    overwrite: bool = False

    def __post_init__(self) -> None:
        try:
            self._check()
        except OSError as error:
            raise self._cannot(error) from None

    def _check(self) -> None:
        if self.path.is_dir():
            raise ValueError(f"{self.flag}: {str(self.path)!r} is a folder; write the path of a file")
        if not self.path.parent.is_dir():
            raise ValueError(
                f"{self.flag}: {str(self.path)!r} cannot be written: there is no such folder; make it or write another "
                "path"
            )
        if self._replaced and not self.overwrite and not self._ours():
            raise ValueError(
                f"{self.flag}: {str(self.path)!r} is there and was not written by shardwise for this; write another "
                "path, or --overwrite"
            )

    @property
    def _replaced(self) -> bool:
        """Whether a file stands there that writing would replace."""
        return self.path.is_file() and not self._stream

    @property
    def _stream(self) -> bool:
        if str(self.path.absolute()).startswith(STREAMS):
            return True
        return self.path.exists() and not stat.S_ISREG(self.path.stat().st_mode)

    def _ours(self) -> bool:
        with self.path.open("rb") as file:
            head = file.read(HEAD)
        if head[:2] == b"\x1f\x8b":
            try:
                with gzip.open(self.path) as packed:
                    head = packed.read(HEAD)
            except (OSError, EOFError, zlib.error):
                return False
        return not head or self.mark in head

    def write(self, content: bytes) -> None:
        try:
            if not self._stream:
                with moved_to(self.path) as file:
                    file.write(content)
                return
            # without waiting for somebody to read a pipe
            with open(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK), "wb") as stream:
                os.set_blocking(stream.fileno(), True)
                stream.write(content)
        except OSError as error:
            raise self._cannot(error) from None

    def _cannot(self, error: OSError) -> ValueError:
        return ValueError(f"{self.flag}: {str(self.path)!r} cannot be written ({error.strerror}); write another path")
