"""`shardwise checkpoints`: what is in a folder of checkpoints, whether it is whole, and which of it may go; second
words compare and convert."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.checkpoints import checkpoints_answer
from shardwise.show.cli._options import Json, within
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import mib_bar
from shardwise.show.cli._second_words import app_of

checkpoints = app_of("checkpoints")


@checkpoints.default
def listed(
    folder: Annotated[Path, Parameter(help="As given to `run --checkpoints`, or a checkpoint of another program.")],
    /,
    *,
    verify: Annotated[bool, Parameter(negative=(), help="Read every byte: checksums, numbers, steps.")] = False,
    keep: Annotated[
        int,
        Parameter(help="Keep this many of the newest whole ones, delete older; 0: delete none."),
        within(0, cure="a whole number of 1 or more, or 0 to delete none"),
    ] = 0,
    json: Json = False,
) -> int:
    """Lists checkpoints, newest first. Exit code 1 when one is damaged; damaged ones are never deleted."""
    if not folder.is_dir() and folder.suffix != ".safetensors":
        raise ValueError(f"folder: {str(folder)!r} is not a folder; write the one given to run --checkpoints")
    with mib_bar("MiB compared") as read:
        answer = checkpoints_answer(folder, verify=verify, keep=keep, read=read)
    return answered(answer, json)
