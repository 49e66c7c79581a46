"""Who writes in a folder of checkpoints: one run at a time.

The file says who, where and since when; the kernel's lock on it says whether that process still lives, and is gone with
it. A lock of another host is believed, since a process there cannot be looked for.
"""

import errno
import fcntl
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep

import msgspec
from msgspec import Struct

from shardwise.run.runtime.checkpoints.opened import OpenedFolder

NAME = ".lock"
PATIENCE_S = 5.0
"""ranks of a launcher that was killed take a moment to die"""
POLL_S = 0.05
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)


class LockOwner(Struct, frozen=True, kw_only=True):
    pid: int
    host: str
    since: str
    run: str = ""
    """the launcher's name of the run, which a restart of it has too"""

    def text(self) -> str:
        return f"process {self.pid} on {self.host}, started {self.since}"


class FolderLock:
    """Held until released, or until this process ends, in the folder that was opened, whatever its name is by then."""

    def __init__(self, folder: OpenedFolder, handle: int, taken_from: LockOwner | None) -> None:
        self.folder, self._handle, self.taken_from = folder, handle, taken_from

    def check(self) -> None:
        """OSError where the folder, or the lock in it, is not there any more."""
        self.folder.check()
        if not _still_there(self.folder, self._handle):
            raise OSError(errno.ESTALE, f"{str(self.folder.path / NAME)!r} was removed during the run")

    def release(self) -> None:
        if _still_there(self.folder, self._handle):
            os.unlink(NAME, dir_fd=self.folder.handle)
        os.close(self._handle)
        self.folder.close()


def lock(path: Path, run: str = "", patience_s: float = PATIENCE_S) -> FolderLock:
    """ValueError where another run has the folder."""
    until = monotonic() + patience_s
    while True:
        folder = OpenedFolder(path)
        try:
            taken, refusal = _tried(folder, run)
        except BaseException:
            folder.close()
            raise
        if taken is not None:
            return taken
        folder.close()
        if refusal and monotonic() > until:
            raise ValueError(refusal)
        if refusal:
            sleep(POLL_S)


def _tried(folder: OpenedFolder, run: str) -> tuple[FolderLock | None, str]:
    """The lock, or why not; neither where its last owner has just removed it."""
    handle, made = _opened(folder)
    free = _taken(handle)
    owner = _read(handle)
    if not _still_there(folder, handle):
        os.close(handle)
        return None, ""
    if free is None:
        free = made or (owner is not None and not _lives(owner))
    if free and (owner is None or owner.host == _host() or (run and owner.run == run)):
        _write(handle, LockOwner(pid=os.getpid(), host=_host(), since=_now(), run=run))
        return FolderLock(folder, handle, owner), ""
    os.close(handle)
    return None, _refusal(folder.path, owner, free)


def owner_of(folder: Path) -> LockOwner | None:
    """Whoever is written in the lock, dead or alive."""
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _read(handle)
    finally:
        os.close(handle)


def _refusal(folder: Path, owner: LockOwner | None, free: bool) -> str:
    who = owner.text() if owner is not None else "another process"
    if free:
        return (
            f"checkpoints: {str(folder)!r} was left locked by {who}, another host than this ({_host()}); if that "
            f"process has ended, delete {str(folder / NAME)!r}, else write another folder"
        )
    return f"checkpoints: {str(folder)!r} is in use by {who}; wait until it has ended, or write another folder"


def _opened(folder: OpenedFolder) -> tuple[int, bool]:
    path = folder.path / NAME
    try:
        return os.open(NAME, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder.handle), True
    except FileExistsError:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise ValueError(
                f"checkpoints: {str(path)!r} is not an ordinary file; delete it, or write another folder"
            ) from None
        return os.open(NAME, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o644, dir_fd=folder.handle), False


def _taken(handle: int) -> bool | None:
    """None where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


def _still_there(folder: OpenedFolder, handle: int) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(NAME, dir_fd=folder.handle))
    except FileNotFoundError:
        return False


def _lives(owner: LockOwner) -> bool:
    if owner.host != _host():
        return True
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _read(handle: int) -> LockOwner | None:
    try:
        return msgspec.json.decode(os.pread(handle, 4096, 0), type=LockOwner)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OSError):
        return None


def _write(handle: int, owner: LockOwner) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, msgspec.json.encode(owner), 0)
    os.fsync(handle)


def _host() -> str:
    return socket.gethostname()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
