"""`shardwise checkpoints convert`: a checkpoint in another format or layout, proven equal by reading it back."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.convert import convert_answer
from shardwise.question.files import document_of, ranks_of_plan
from shardwise.run.runtime.formats.layout import WRITTEN
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import mib_bar


def convert(
    source: Annotated[Path, Parameter(help="A checkpoint, in any format that is read.")],
    out: Annotated[Path, Parameter(help="The folder to write; it must not exist.")],
    /,
    *,
    to: Annotated[str, Parameter(help=f"{', '.join(WRITTEN)}.")],
    plan: Annotated[str | None, Parameter(help="A plan file: rows are dealt out to as many ranks.")] = None,
    json: Json = False,
) -> int:
    """Weights, moments and step go over bit for bit; what cannot is listed. Without a plan: files of one rank."""
    document = None if plan is None else document_of(plan)
    if plan is not None and document is None:
        raise ValueError(f"plan: {plan!r} is not a plan file; write what `shardwise plan --json` prints")
    ranks = 1 if plan is None or document is None else ranks_of_plan(plan, document)
    with mib_bar("MiB written and compared") as read:
        answer = convert_answer(source, out, to, ranks, read)
    return answered(answer, json)
