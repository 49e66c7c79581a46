"""`shardwise trace`: a user's own PyTorch training step on a pretended world, captured and priced."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.programs.exporters.trace_events import trace_file
from shardwise.report.tier import TRACED
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._flags import DOES_NOT_FIT
from shardwise.show.cli._options import Json, ProfileFile, profile_or_none, within
from shardwise.show.cli._output import Cell, print_facts, print_gap, print_json, print_notes, print_table
from shardwise.show.cli._progress import LogLines
from shardwise.show.cli._torch import needs_torch
from shardwise.spec.cluster import Cluster
from shardwise.spec.load import cluster_of
from shardwise.spec.software import known_stack
from shardwise.units import time_text

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
    notes = notes_of(captured, found)
    if json:
        print_json({"script": script.name, "cluster": cluster.name if cluster else None, "tier": TRACED,
                    **_document(found), "notes": notes})  # fmt: skip
    else:
        _show(script.name, cluster, found)
        print_notes(notes)
        if perfetto is not None:
            print(f"trace: {perfetto} (open in ui.perfetto.dev)")
    return DOES_NOT_FIT if found.fit is not None and not found.fit.fits else 0


def _ranks(world: int | None, cluster: Cluster | None) -> int:
    if world is None:
        if cluster is None:
            raise ValueError("world: how many ranks? write --world 8, or --on with a cluster")
        return cluster.gpus
    if cluster is not None and cluster.gpus < world:
        raise ValueError(f"on: {cluster.name} has {cluster.gpus} GPUs, --world asks for {world}; write a larger one")
    return world


def _document(found: Any) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__struct_fields__}


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


def _rate(time: Any) -> str:
    """Of the rank's own batch: nobody says which ranks share one."""
    if time.batch_tokens_per_s:
        return f"; {time.batch_tokens_per_s:,.0f} tokens/s of its batch"
    return f"; {time.batch_samples_per_s:,.1f} samples/s of its batch" if time.batch_samples_per_s else ""


def _show(name: str, cluster: Cluster | None, found: Any) -> None:
    facts: list[tuple[str, Cell]] = [
        ("traced", f"rank {found.rank} of {found.world:,}, second step"),
        ("FLOPs", ", ".join(f"{phase} {flops / 1e12:,.4g}T" for phase, flops in found.flops.items() if flops) or "0"),
        ("peak", f"{found.peak_bytes / GIB:,.3f} GiB{'' if cluster else ' of tensors'}, in the {found.peak_phase}"),
    ]
    if found.time is not None:
        time = found.time
        facts += [
            ("step", f"{time_text(time.step_s)} ({time_text(time.low_s)} .. {time_text(time.high_s)}){_rate(time)}"),
            ("MFU", f"{time.mfu_causal_half:.1%} of the {time.peak_dtype} peak (with the masked half of attention "
                    f"{time.mfu_full_square:.1%})"),
            ("exposed", f"{time_text(time.parts['messages'])} of {time_text(time.message_s)} of messages"),
            ("fits", f"{'yes' if found.fit.fits else 'NO'}: {found.fit.needed_bytes / GIB:,.1f} of "
                     f"{found.fit.limit_bytes / GIB:,.1f} GiB"),
        ]  # fmt: skip
    print_facts(f"{name} on {cluster.name if cluster else 'no cluster: nothing is priced'}", facts)
    print_gap()
    print_table(
        "messages of one step", ["group", "ranks", "operation", "phase", "dtype", "count", "MiB", "ms"],
        [(r.group, f"{r.ranks} / {r.stride}", r.op, r.phase, r.dtype, r.count, r.bytes / 2**20,
          None if r.seconds is None else r.seconds * 1e3) for r in found.messages],
        words=5, bars=("MiB",),
    )  # fmt: skip
    print_gap()
    print_table(
        "memory, GiB", ["kind", "at the peak", "own peak"],
        [(kind, f"{size / GIB:,.3f}", f"{found.kind_peaks[kind] / GIB:,.3f}")
         for kind, size in found.memory_bytes.items() if found.kind_peaks[kind]],
        bars=("at the peak", "own peak"),
    )  # fmt: skip
    if found.time is not None:
        print_gap()
        print_table(
            "step, ms", ["part", "ms", "share"],
            [(part, seconds * 1e3, f"{seconds / found.time.step_s:.1%}")
             for part, seconds in found.time.parts.items() if seconds],
            bars=("ms",),
        )  # fmt: skip
    print_gap()
    print_table(
        "operators that take longest" if found.time else "operators",
        ["operator", "count", "GFLOP", "MiB", "ms"],
        [(r.name, r.count, r.flops / 1e9, r.bytes / 2**20, None if r.seconds is None else r.seconds * 1e3)
         for r in found.operators[:OPERATORS_SHOWN]],
        bars=("ms",) if found.time else ("GFLOP",),
    )  # fmt: skip
