"""A folder that stays the one that was opened: after its name was given to another nothing is written under it."""

import errno
import os
from pathlib import Path


class OpenedFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.handle = _opened(path)

    def check(self) -> None:
        """OSError where the name is of another folder now, or of none. By opening it: a network file system may answer
        other questions from memory."""
        try:
            now = _opened(self.path)
        except (FileNotFoundError, NotADirectoryError):
            raise self._gone() from None
        try:
            if not os.path.samestat(os.fstat(now), os.fstat(self.handle)):
                raise self._gone()
        finally:
            os.close(now)

    def _gone(self) -> OSError:
        return OSError(errno.ESTALE, f"{str(self.path)!r} was renamed, removed or replaced during the run")

    def close(self) -> None:
        os.close(self.handle)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
