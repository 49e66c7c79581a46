"""`shardwise plan`: the best policies for a model on a cluster, and why the others lose."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from shardwise.arch import model_of
from shardwise.cli._job import (
    DEFAULT_STACK,
    GlobalBatch,
    OptimizerName,
    PrecisionName,
    Seq,
    StackName,
    Tokens,
    job_of,
)
from shardwise.cli._options import Json, ProfileFile, profile_or_none
from shardwise.cli._output import Cell, print_json, print_notes, print_table
from shardwise.cli._policy import command_of
from shardwise.cost.overlay import what_it_changes
from shardwise.estimate.mfu import conventions
from shardwise.report.money import money_of, price_line
from shardwise.report.terminal import policy_code, policy_text, usd_text
from shardwise.search import Candidate, Ranked, scan
from shardwise.search.exhaustive import HEADROOM
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.stack import Stack, known_stack
from shardwise.units import gib

DOES_NOT_FIT = 1
DAY = 86400.0
MOST_SHOWN = 1000


def plan(
    model: Annotated[str, Parameter(help="A catalog name, or a path to a Hugging Face config.json.")],
    /,
    *,
    on: Annotated[str, Parameter(help="dgx-h100:1024, 8xh100, 4x8xh100 or a YAML file.")],
    seq: Seq = None,
    global_batch: GlobalBatch = None,
    tokens: Tokens = None,
    precision: PrecisionName = "bf16",
    optimizer: OptimizerName = "adamw",
    stack: StackName = DEFAULT_STACK,
    top: Annotated[int, Parameter(help="Policies to list.")] = 10,
    headroom: Annotated[float, Parameter(help="Share of a GPU's memory a policy may fill.")] = HEADROOM,
    profile: ProfileFile = None,
    json: Json = False,
) -> int:
    """The best policies, why they win, why the others do not, how long and how much."""
    shape, cluster, software = model_of(model), cluster_of(on), known_stack(stack)
    measured = profile_or_none(profile)
    job, notes = job_of(shape, seq, global_batch, precision, optimizer, tokens)
    if not 1 <= top <= MOST_SHOWN:
        raise ValueError(f"top: {top} is out of range; write a whole number from 1 to {MOST_SHOWN:,}")
    with _bar() as progress:
        ranked = scan(shape, cluster, job, software, top=top, headroom=headroom, progress=progress, profile=measured)
    notes += _notes(ranked, cluster, software)
    if measured is not None:
        notes += [measured.words, *what_it_changes(measured, software)]
    if ranked.best:
        asked = ["--profile", str(profile)] if profile is not None else []
        notes.append(
            "run: " + shlex.join([*shlex.split(command_of(model, on, job, ranked.best[0].policy, stack)), *asked])
        )
    if json:
        print_json(_data(shape, cluster, job, software, ranked) | {"notes": notes})
    elif ranked.best:
        _show(shape, cluster, job, ranked, notes)
    else:
        print_notes(_nothing(ranked, cluster), title=f"{shape.name} on {cluster.name}: no policy fits")
        print_notes(notes)
    return 0 if ranked.best else DOES_NOT_FIT


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr where someone watches it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("policies")
        yield lambda done, of: bar.update(task, completed=done, total=of)


def _show(model: Model, cluster: Cluster, job: Job, ranked: Ranked, notes: list[str]) -> None:
    amount = job.tokens or 1e9
    heads = ["policy", "step s", "MFU %", "tok/s", "GiB"]
    heads += ["days", "USD"] if job.tokens else ["USD/Gtok"]
    flops = _flops(model, job)
    peak = cluster.gpu.peak(job.precision.compute)

    def cells(found: Candidate) -> list[Cell]:
        money = money_of(cluster, amount, found.tokens_per_s_per_gpu * cluster.gpus)
        row: list[Cell] = [policy_code(found.policy), f"{found.step_s:.4g}",
                           f"{100 * found.tokens_per_s_per_gpu * flops / peak:.1f}",
                           f"{found.tokens_per_s_per_gpu:,.0f}", gib(found.peak_bytes)]  # fmt: skip
        return row + ([f"{money.seconds / DAY:,.4g}"] if job.tokens else []) + [usd_text(money)]

    print_table(
        f"{model.name} on {cluster.name}",
        heads, map(cells, ranked.best),
    )  # fmt: skip
    print_notes([f"{loser.kind}: {loser.why} ({policy_code(loser.policy)})" for loser in ranked.losers],
                title="why others lose (the best of their kind)")  # fmt: skip
    print_notes(notes)


def _flops(model: Model, job: Job) -> float:
    return next(c.flops_per_token for c in conventions(model, job.seq) if c.key == "full_square")


def _nothing(ranked: Ranked, cluster: Cluster) -> list[str]:
    if ranked.smallest is None:
        return ["no policy is legal: the batch or the number of GPUs does not divide"]
    small = ranked.smallest
    return [
        f"the smallest needs {gib(small.peak_bytes)} GiB of {gib(ranked.limit_bytes)} that may be filled: "
        f"{policy_text(small.policy)}",
        f"use more than {cluster.gpus:,} GPUs, a shorter sequence, or an optimizer with less state",
    ]


def _notes(ranked: Ranked, cluster: Cluster, stack: Stack) -> list[str]:
    notes = [
        f"looked at {ranked.points:,} points: {ranked.legal:,} legal, {ranked.fitting:,} fit",
        f"a policy may fill {gib(ranked.limit_bytes)} of {gib(cluster.gpu.memory_bytes)} GiB; "
        "z is the ZeRO stage, mb the micro-batch; tok/s is per GPU; MFU counts the whole attention square",
        f"stack {stack.name}: error band of a step time {stack.error_band:.0%}",
        price_line(cluster),
    ]
    if ranked.evaluated < ranked.legal:
        notes.append(f"interrupted: {ranked.evaluated:,} of {ranked.legal:,} legal policies were looked at")
    if len(ranked.best) > 1:
        close = sum(c.step_s <= ranked.best[0].step_s * (1 + stack.error_band) for c in ranked.best)
        if close > 1:
            notes.append(f"the first {close} differ by less than that band: any of them may be the fastest in fact")
    return notes


def _data(model: Model, cluster: Cluster, job: Job, stack: Stack, ranked: Ranked) -> dict[str, Any]:
    flops, peak = _flops(model, job), cluster.gpu.peak(job.precision.compute)

    def entry(found: Candidate) -> dict[str, Any]:
        rate = found.tokens_per_s_per_gpu
        run = money_of(cluster, job.tokens, rate * cluster.gpus) if job.tokens else None
        return {
            "policy": msgspec.to_builtins(found.policy), "step_s": found.step_s, "tokens_per_s_per_gpu": rate,
            "mfu_full_square": rate * flops / peak, "peak_bytes": found.peak_bytes,
            "run": msgspec.to_builtins(run), "billion_tokens": msgspec.to_builtins(
                money_of(cluster, 1e9, rate * cluster.gpus)),
        }  # fmt: skip

    return {
        "tier": "closed form", "model": model.name, "cluster": cluster.name, "gpus": cluster.gpus, "stack": stack.name,
        "seq_tokens": job.seq, "global_sequences": job.global_batch, "step_tokens": job.step_tokens,
        "tokens": job.tokens or None, "error_band": stack.error_band, "limit_bytes": ranked.limit_bytes,
        "points": ranked.points, "legal": ranked.legal, "evaluated": ranked.evaluated, "fitting": ranked.fitting,
        "best": [entry(found) for found in ranked.best],
        "losers": [{"kind": found.kind, "why": found.why, "policy": msgspec.to_builtins(found.policy),
                    "step_s": found.step_s, "peak_bytes": found.peak_bytes, "slower": found.slower,
                    "over_bytes": found.over_bytes} for found in ranked.losers],
        "smallest": entry(ranked.smallest) if ranked.smallest else None,
    }  # fmt: skip
