"""`shardwise estimate`: one policy - memory, time, utilization, traffic, cost, and whether it can run at all."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.estimate import estimate_answer
from shardwise.show.cli._flags import Flags, StageLayers, asked, on_of, with_stage_layers
from shardwise.show.cli._groups import OUTPUT
from shardwise.show.cli._options import Json, ModelName, Verbose, within
from shardwise.show.cli._output import answered

MOST_EVIDENCE = 50


def estimate(
    model: ModelName,
    /,
    flags: Flags,
    *,
    evidence: Annotated[
        int,
        Parameter(
            group=OUTPUT, help="Show this many of the most similar measured runs, each with its prediction; 0: none."
        ),
        within(0, MOST_EVIDENCE),
    ] = 0,
    stage_layers: StageLayers = "",
    verbose: Verbose = False,
    json: Json = False,
) -> int:
    """One policy, the recommended one where none is stated: memory by kind and stage, step time by part, MFU, traffic,
    cost, verdict."""
    shown = json or verbose
    ask = with_stage_layers(asked(model, flags), stage_layers)
    answer = estimate_answer(ask, evidence=evidence, traffic=shown, model=model, on=on_of(flags))
    return answered(answer, json, verbose)
