"""`shardwise checkpoints diff`: two checkpoints compared tensor by tensor, whatever formats they are in."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.diff import diff_answer
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import mib_bar


def diff(
    a: Annotated[Path, Parameter(help="A checkpoint, in any format that is read.")],
    b: Annotated[Path, Parameter(help="Another.")],
    /,
    *,
    json: Json = False,
) -> int:
    """Tensors of one alone, other types and shapes, unequal elements. Exit code 1 when they differ."""
    with mib_bar("MiB compared") as read:
        answer = diff_answer(a, b, read)
    return answered(answer, json)
