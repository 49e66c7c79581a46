"""What of the model is trained, as the flags of several verbs state it."""

from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from shardwise.arch.tuned import tuned
from shardwise.cli._groups import JOB
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.tuning import Tuning, tuning_of

Tune = Annotated[
    str | None,
    Parameter(
        group=JOB,
        help="full, lora, dora or qlora; with rank=16, targets=attention, mlp, all or modules (q_proj,v_proj).",
    ),
]
Freeze = Annotated[
    str | None, Parameter(group=JOB, help="Parts that are not trained: embeddings, first=8 (layers), vision.")
]


def with_tuning(job: Job, model: Model, tune: str | None, freeze: str | None) -> Job:
    """Names that the model does not have fail here, before anything long."""
    tuning = tuning_of(tune, freeze)
    tuned(model, tuning)
    return job if tuning is None else replace(job, tuning=tuning)


def tuning_words(tuning: Tuning | None) -> list[str]:
    """As flags, for a command line the user can run."""
    if tuning is None:
        return []
    stated = (("--tune", tuning.tune_text), ("--freeze", tuning.freeze_text))
    return [word for flag, text in stated if text for word in (flag, text)]


def refuse_tuning(verb: str, why: str, *stated: object) -> None:
    if any(stated):
        raise ValueError(f"tune: {verb} {why}; leave --tune and --freeze out")
