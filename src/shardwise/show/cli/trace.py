"""`shardwise trace`: a user's own PyTorch training step on a pretended world, captured and priced."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.answers.trace import trace_answer
from shardwise.programs.exporters.trace_events import trace_file
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._options import Json, ProfileFile, profile_or_none, within
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import LogLines
from shardwise.show.cli._torch import needs_torch
from shardwise.spec.cluster import Cluster
from shardwise.spec.load import cluster_of
from shardwise.spec.software import known_stack

GIB = 2.0**30
OPERATORS_SHOWN = 8
COMPILED, SEVERAL, ALONE = "torch-eager@compiled", "torchtitan", "torch-eager"


def trace(
    script: Annotated[Path, Parameter(help="Your Python file; its code is run.")],
    /,
    *arguments: Annotated[str, Parameter(help="After '--': the script's own.")],
    world: Annotated[int | None, Parameter(help="Ranks; default: the GPUs of --on."), within(1)] = None,
    on: Annotated[str | None, Parameter(help="Price it on dgx-h100:1024, 8xh100 or a YAML file.")] = None,
    rank: Annotated[int, Parameter(help="Which of the ranks.")] = 0,
    stack: Annotated[
        str | None, Parameter(help="Software constants; default: torchtitan, or torch-eager / -compile for one rank.")
    ] = None,
    profile: ProfileFile = None,
    perfetto: Annotated[Path | None, Parameter(help="The priced step for Perfetto: FILE.json or FILE.json.gz.")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """Every message, memory by kind and FLOPs of your own training step; no GPU is needed."""
    cluster = None if on is None else cluster_of(on)
    ranks = _ranks(world, cluster)
    if perfetto is not None and cluster is None:
        raise ValueError("perfetto: a step in time needs a cluster; write --on 8xh100")
    file = None if perfetto is None else trace_file(perfetto, "perfetto", overwrite)
    needs_torch("trace")
    from shardwise.run.trace.capture import traced
    from shardwise.run.trace.notes import notes_of
    from shardwise.run.trace.perfetto import write_perfetto
    from shardwise.run.trace.price import prices_of
    from shardwise.run.trace.result import result_of

    if stack is not None:
        known_stack(stack)
    with _progress() as told:
        captured = traced(script, ranks, rank, told, arguments)
    chosen = known_stack(stack or (SEVERAL if ranks > 1 else COMPILED if captured.compiled else ALONE))
    prices = None if cluster is None else prices_of(captured, cluster, chosen, profile_or_none(profile))
    found, played = result_of(captured, prices)
    if file is not None and played is not None:
        write_perfetto(captured, played, file)
    answer = trace_answer(script.name, cluster.name if cluster else None, found, notes_of(captured, found))
    return answered(answer, json, wrote={"trace": f"{perfetto} (open in ui.perfetto.dev)"} if perfetto else {})


def _ranks(world: int | None, cluster: Cluster | None) -> int:
    if world is None:
        if cluster is None:
            raise ValueError("world: how many ranks? write --world 8, or --on with a cluster")
        return cluster.gpus
    if cluster is not None and cluster.gpus < world:
        raise ValueError(f"on: {cluster.name} has {cluster.gpus} GPUs, --world asks for {world}; write a larger one")
    return world


@contextmanager
def _progress() -> Iterator[Any]:
    """A line on stderr: one that changes where someone watches it."""
    if not sys.stderr.isatty():
        lines = LogLines()
        yield lambda what, count: lines.say(f"{what}: {count:,} operators")
        return
    from rich.console import Console
    from rich.status import Status

    with Status("running the script", console=Console(stderr=True)) as status:
        yield lambda what, count: status.update(f"{what}: {count:,} operators")
