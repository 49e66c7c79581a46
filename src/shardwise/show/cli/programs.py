"""`shardwise catalog programs`: the known training programs: errors of predictions, origin of each constant."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.programs import program_answer, programs_answer
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered
from shardwise.spec.software import known_stack


def programs(
    name: Annotated[str | None, Parameter(help="A program, or PROGRAM@RELEASE, as --stack takes it.")] = None,
    /,
    *,
    gpu: Annotated[str, Parameter(help="GPU that the error is shown for.")] = "h100",
    json: Json = False,
) -> int:
    """The training programs shardwise knows: errors, what each was fitted on, the origin of every constant."""
    if name is None:
        return answered(programs_answer(gpu), json)
    return answered(program_answer(known_stack(name), gpu, settings=True), json)
