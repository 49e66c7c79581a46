"""`shardwise calc loss`: scores to probabilities, loss and gradient."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.loss import loss_answer
from shardwise.show.cli._array import numbers_of
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered


def loss(
    scores: Annotated[str, Parameter(help="Scores of the classes, as a model's last layer gives them: 2.0,1.0,0.1.")],
    /,
    *,
    label: Annotated[int, Parameter(help="The right class, counted from 0.")] = 0,
    json: Json = False,
) -> int:
    """Softmax, cross-entropy, and the gradient probability - truth that the backward pass begins with."""
    return answered(loss_answer(numbers_of(scores, "scores"), label), json)
