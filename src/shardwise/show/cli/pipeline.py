"""`shardwise calc pipeline`: who works in each time step of a pipeline."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.pipeline import ORDERS, pipeline_answer
from shardwise.show.cli._options import Json, within
from shardwise.show.cli._output import answered


def pipeline(
    *,
    stages: Annotated[int, Parameter(help="Stages, one on each GPU."), within(1, 64)] = 4,
    micro: Annotated[int, Parameter(help="Micro-batches of a step."), within(1, 1024)] = 4,
    order: Annotated[
        str,
        Parameter(help=f"{', '.join(ORDERS)}: textbook has a forward and a backward of a stage in one time step."),
    ] = "textbook",
    json: Json = False,
) -> int:
    """A pipeline in whole time steps: which stage works on which micro-batch, and how many are at work."""
    return answered(pipeline_answer(stages, micro, order), json)
