"""Do all ranks write in the same folder? Each leaves a file there and looks for its neighbour's."""

import uuid
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from shardwise.run.runtime.checkpoints.agree import AgreedRefusal, Agreement

PATIENCE_S = 30.0
"""as long as network file systems keep names by default (NFS: acdirmin)"""


def patience_of(agreed: Agreement) -> float:
    """Less than the others wait for this rank's answer."""
    return min(PATIENCE_S, agreed.wait_s / 2)


def check_shared(folder: Path, agreed: Agreement) -> None:
    token = agreed.by_first(lambda: uuid.uuid4().hex)
    mine = folder / f".seen-{token}-{agreed.rank}"

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        mine.write_text(token, encoding="ascii")

    def look() -> None:
        neighbour = (agreed.rank + 1) % agreed.ranks
        if not appears(folder / f".seen-{token}-{neighbour}", patience_of(agreed)):
            raise ValueError(f"the file that rank {neighbour} wrote there is not to be seen")

    try:
        if problems := agreed.problems(write):
            rank, why = next(iter(problems.items()))
            raise AgreedRefusal(
                f"checkpoints: {str(folder)!r} cannot be written by rank {rank} ({why}); write a folder of yours"
            )
        if problems := agreed.problems(look):
            rank, why = next(iter(problems.items()))
            raise AgreedRefusal(
                f"checkpoints: {str(folder)!r} is not the same folder on all ranks (rank {rank}: {why}); "
                "write one on a file system that every node has"
            )
    finally:
        with suppress(OSError):
            mine.unlink()


def appears(path: Path, patience_s: float) -> bool:
    """Asked for by its name: a network file system may list a folder late, but does not hide a file."""
    until = monotonic() + patience_s
    while not path.exists():
        if monotonic() > until:
            return False
        sleep(0.1)
    return True
