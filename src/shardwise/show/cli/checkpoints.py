"""`shardwise checkpoints`: what is in a folder of checkpoints, whether it is whole, and which of it may go."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.checkpoints import checkpoints_answer
from shardwise.show.cli._options import Json, within
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import bar


def checkpoints(
    folder: Annotated[Path, Parameter(help="As given to `run --checkpoints`.")],
    /,
    *,
    verify: Annotated[bool, Parameter(negative=(), help="Read every byte and compare it with its checksum.")] = False,
    keep: Annotated[
        int,
        Parameter(help="Keep this many of the newest whole ones, delete older; 0: delete none."),
        within(0, cure="a whole number of 1 or more, or 0 to delete none"),
    ] = 0,
    json: Json = False,
) -> int:
    """Lists checkpoints, newest first. Exit code 1 when one is damaged; damaged ones are never deleted."""
    if not folder.is_dir():
        raise ValueError(f"folder: {str(folder)!r} is not a folder; write the one given to run --checkpoints")
    with bar("MiB compared") as progress:
        total = [0]

        def read(size: int) -> None:
            total[0] += size
            progress(total[0] >> 20, 0)

        answer = checkpoints_answer(folder, verify=verify, keep=keep, read=read)
    return answered(answer, json)
