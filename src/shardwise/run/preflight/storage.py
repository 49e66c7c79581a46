"""How fast a folder takes and gives bytes: one file, written, read and deleted, for a limited time and size."""

import os
import time
from pathlib import Path
from uuid import uuid4

from shardwise.run.preflight.measurements import FolderRates

BLOCK = 2**23
MOST_BYTES = 2**30
MOST_SHARE = 0.05
"""of the room that is free"""


def storage_rates(folder: Path, seconds: float, most: int = MOST_BYTES) -> FolderRates:
    """Bytes/s written to the medium and read again; what went wrong in words. Nothing is left behind."""
    path = folder / f".shardwise-preflight-{uuid4().hex}"
    try:
        about = os.statvfs(folder)
        most = min(most, int(about.f_bavail * about.f_frsize * MOST_SHARE))
        if most < BLOCK:
            return FolderRates(folder=str(folder), error=f"{str(folder)!r} has no room to measure in")
        try:
            size, written_s = _written(path, most, seconds / 2)
            read_s, cached = _read(path, seconds / 2)
        finally:
            path.unlink(missing_ok=True)
    except OSError as error:
        return FolderRates(folder=str(folder), error=f"{str(folder)!r}: {error.strerror}")
    got, took = read_s
    return FolderRates(folder=str(folder), bytes=size, write_bytes_per_s=size / written_s, read_bytes_per_s=got / took,
                       cached=cached)  # fmt: skip


def _written(path: Path, most: int, seconds: float) -> tuple[int, float]:
    block, done, start = os.urandom(BLOCK), 0, time.perf_counter()
    with path.open("xb", buffering=0) as file:
        while done < most and time.perf_counter() - start < seconds:
            done += file.write(block[: most - done])
        os.fsync(file.fileno())
    return done, time.perf_counter() - start


def _read(path: Path, seconds: float) -> tuple[tuple[int, float], bool]:
    """((bytes, seconds), whether they may come from memory)."""
    with path.open("rb", buffering=0) as file:
        cached = not hasattr(os, "posix_fadvise")
        if not cached:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        done, start = 0, time.perf_counter()
        while (block := file.read(BLOCK)) and time.perf_counter() - start < seconds:
            done += len(block)
        return (max(done, 1), max(time.perf_counter() - start, 1e-9)), cached
