"""`shardwise posttrain`: a step of reinforcement learning - who rolls out and who trains, how long, how much."""

from typing import Annotated

from shardwise.answers.posttrain import posttrain_answer
from shardwise.question.posttrain import posttrain_question
from shardwise.show.cli._options import Json, ModelName, Verbose, flags
from shardwise.show.cli._output import answered
from shardwise.spec.parameters import ON, PosttrainOptions


@flags
class PosttrainFlags(PosttrainOptions):
    on: Annotated[str, ON]


def posttrain(model: ModelName, /, flags: PosttrainFlags, *, verbose: Verbose = False, json: Json = False) -> int:
    """A step of post-training: rollout, log-probabilities, update, weight sync; colocated or split, its cost."""
    answer = posttrain_answer(posttrain_question(model, flags.on, flags), model=model, on=flags.on)
    return answered(answer, json, verbose)
