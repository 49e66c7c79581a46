"""The flags of `shardwise plan --measure`, apart from the trials: a plan without them starts sooner."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.show.cli._groups import OUTPUT, QUESTION
from shardwise.show.cli._options import ACTS
from shardwise.show.cli._shown import RARE
from shardwise.spec.cluster import Cluster
from shardwise.units import seconds_of

CANDIDATES = 64
"""policies of the plan that trials choose from, the fastest by prediction"""
MOST_TRIALS = 100
OWN_STACK = "shardwise"
LIMIT = "10 min"


@Parameter(name="*", show=RARE)
@dataclass(frozen=True, kw_only=True)
class TrialFlags:
    measure: Annotated[
        int | None,
        ACTS,
        Parameter(group=QUESTION, help="Run this many short trials here, the most informative first, and rank again."),
    ] = None
    measure_with: Annotated[
        str | None,
        ACTS,
        Parameter(
            group=QUESTION,
            help="With --measure: the command of a trial, with {policy}, {tp}, {pp}, ...; prints JSON with step_s.",
        ),
    ] = None
    measure_limit: Annotated[
        str | None,
        ACTS,
        Parameter(group=QUESTION, help=f"With --measure: the time one trial may take; default {LIMIT!r}."),
    ] = None
    measure_device: Annotated[
        str | None,
        ACTS,
        Parameter(group=QUESTION, help="With --measure, where `shardwise run` tries: cuda (default), or cpu."),
    ] = None
    learned: Annotated[
        Path | None,
        ACTS,
        Parameter(group=OUTPUT, help="With --measure: the profile to write, trials included; give it with --profile."),
    ] = None


NO_TRIALS = TrialFlags()


def check_measure(asked: TrialFlags, sync: str | None, stack: str, cluster: Cluster) -> None:
    """Bad flags fail before anything long."""
    if asked.measure is None:
        for field in fields(TrialFlags):
            if getattr(asked, field.name) is not None:
                name = field.name.replace("_", "-")
                raise ValueError(f"{name}: --{name} is asked of trials; write --measure 8 too, or leave it out")
        return
    if not 1 <= asked.measure <= MOST_TRIALS:
        raise ValueError(f"measure: {asked.measure} is out of range; write 1 to {MOST_TRIALS} trials")
    if sync is not None:
        raise ValueError("measure: trials compare steps of the mean gradient; leave --sync out")
    from shardwise.show.cli._measure import profile_file  # most plans try nothing
    from shardwise.show.cli._trial_runs import checked_command, place_of

    if asked.measure_with is not None:
        checked_command(asked.measure_with)
        if asked.measure_device is not None:
            raise ValueError("measure-device: your own command says where it runs; leave --measure-device out")
    elif stack != OWN_STACK:
        raise ValueError(f"measure: trials run by `shardwise run` are predicted with its own stack, not {stack}; write "
                         "--stack shardwise, or --measure-with and a command of yours")  # fmt: skip
    limit = seconds_of(asked.measure_limit or LIMIT, "measure-limit")
    if not 1 <= limit <= 86400:
        raise ValueError(f"measure-limit: {asked.measure_limit!r} is out of range; write '1 s' to '24 h'")
    if asked.learned is not None:
        profile_file(asked.learned)
    if asked.measure_with is None:
        place_of(asked.measure_device, cluster.gpu, cluster.gpus)
