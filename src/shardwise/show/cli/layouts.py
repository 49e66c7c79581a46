"""`shardwise catalog layouts`: published layouts, against what was reported and what could have run instead."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.layouts import layouts_answer
from shardwise.measured.validate.layouts import published_runs
from shardwise.question.job import DEFAULT_STACK
from shardwise.question.studies.published import judge
from shardwise.show.cli._options import Json, StackName
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import answers, left_out
from shardwise.spec.software import known_stack


def layouts(
    name: Annotated[str | None, Parameter(help="A publication ('llama-3') or one run ('llama-3/16k-gpus').")] = None,
    /,
    *,
    stack: StackName = None,
    ranks: Annotated[
        bool, Parameter(negative=(), help="Also of all layouts: the rank among what could have run instead (minutes).")
    ] = False,
    json: Json = False,
) -> int:
    """Published layouts: legal, fitting, predicted against reported; of a named one also its rank."""
    runs = published_runs(name)
    modern = known_stack(stack or DEFAULT_STACK)
    ranked = ranks or name is not None
    found = answers(runs, "layouts", lambda run: judge(run, modern, ranked=ranked))
    return answered(layouts_answer(found, modern.name, left_out(found, runs, "layouts")), json)
