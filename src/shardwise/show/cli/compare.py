"""`shardwise compare`: policies, clusters and precisions side by side."""

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace as with_fields

from shardwise.answers.compare import compare_answer, priced_case
from shardwise.plugins.optimizers import USUAL
from shardwise.question.words import check_policy
from shardwise.show.cli._flags import SharedFlags, asked_openly, on_of
from shardwise.show.cli._options import Json, ModelName
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import answers, left_out
from shardwise.spec.arch import model_of
from shardwise.spec.job import optimizer_of, usual_precision
from shardwise.spec.load import cluster_of
from shardwise.step.estimate.synced import choice_of

MOST_ROWS = 64


def compare(
    model: ModelName,
    /,
    *,
    on: Annotated[list[str], Parameter(negative=(), help="A cluster; may repeat.")],
    policy: Annotated[
        list[str] | None,
        Parameter(negative=(), help="'tp=8,pp=4', ddp, fsdp, hsdp, 3d, best, 'best,zero=3'; may repeat; default best."),
    ] = None,
    precision: Annotated[list[str] | None, Parameter(negative=(), help="bf16, fp8, ...; may repeat.")] = None,
    sync: Annotated[
        list[str] | None, Parameter(negative=(), help="A strategy of data parallelism (`sync list`); may repeat.")
    ] = None,
    flags: SharedFlags = SharedFlags(),  # noqa: B008  frozen
    json: Json = False,
) -> int:
    """Several policies, clusters, precisions, optimizers (adamw,muon): step, MFU, memory, cost, traffic, tokens."""
    choices, precisions = policy or ["best"], precision or [usual_precision(model_of(model))]
    for text in choices:
        check_policy(text)
    names = [on_of(flags, text) for text in on]
    clusters = [cluster_of(name) for name in names]
    largest = max(clusters, key=lambda cluster: cluster.gpus)
    # several optimizers stand in one option: adamw,muon
    first, *others = (flags.optimizer or USUAL).split(",")
    case = asked_openly(model, on[clusters.index(largest)], replace(flags, optimizer=first))
    optimizers = [case.job.optimizer, *(optimizer_of(name.strip()) for name in others)]
    strategies = [[choice_of(text.strip(), each.name) for text in sync or [""]] for each in optimizers]
    wanted = [
        (c, with_fields(case.job, precision=p, optimizer=o), t, s)
        for c in clusters
        for p in map(case.stack.precision, precisions)
        for o, mine in zip(optimizers, strategies, strict=True)
        for t in choices
        for s in mine
    ]
    if len(wanted) > MOST_ROWS:
        raise ValueError(f"compare: {len(wanted)} cases are too many for a table; write at most {MOST_ROWS}")
    rows = answers(
        wanted,
        "cases",
        lambda w: priced_case(replace(case, job=w[1], sync=w[3]), w[0], w[2]),
    )
    return answered(compare_answer(case, rows, [*case.notes, *left_out(rows, wanted, "cases")]), json)
