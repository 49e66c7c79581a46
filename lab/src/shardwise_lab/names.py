"""Names of everything the lab makes, and which of it belongs to nobody any more.

A lab is `swlab-ID-...`: ID is the number of the process that made it, or `up` for one that stays until `lab down`. The
process holds a lock on a file of that name as long as it lives, however it ends, so that a later one can tell.
"""

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import IO

PREFIX = "swlab"
STAYS = "up"
SPACES = Path("/run/netns")
LOCKS = Path("/run/shardwise-lab")
_OURS = re.compile(rf"^{PREFIX}-([0-9a-z]+)-([a-z]+[0-9]+(?:-[0-9]+)?)$")


def space_of(lab: str, vertex: str) -> str:
    return f"{PREFIX}-{lab}-{vertex}"


def labs() -> dict[str, list[str]]:
    """lab -> names of its namespaces, of all there are."""
    found: dict[str, list[str]] = {}
    for path in sorted(SPACES.iterdir()) if SPACES.is_dir() else ():
        if ours := _OURS.match(path.name):
            found.setdefault(ours[1], []).append(path.name)
    return found


def hold(lab: str) -> IO[str]:
    """The lock of a lab that this process makes; it falls when the process ends."""
    LOCKS.mkdir(mode=0o700, exist_ok=True)
    file = (LOCKS / lab).open("w", encoding="utf-8")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def abandoned(lab: str) -> bool:
    """Has the process that made it ended. One that was told to stay is never abandoned."""
    if lab == STAYS:
        return False
    try:
        with (LOCKS / lab).open("r", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


def note(lab: str, text: bytes) -> None:
    """What a lab that stays was built from."""
    (LOCKS / f"{lab}.json").write_bytes(text)


def noted(lab: str) -> bytes:
    path = LOCKS / f"{lab}.json"
    return path.read_bytes() if path.is_file() else b""


def forget(lab: str) -> None:
    for name in (lab, f"{lab}.json"):
        with suppress(OSError):
            (LOCKS / name).unlink()
    with suppress(OSError):  # another lab may have its lock there
        LOCKS.rmdir()
