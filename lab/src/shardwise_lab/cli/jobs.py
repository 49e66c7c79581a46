"""`shardwise lab run` and `lab demo`: jobs on an emulated fabric, measured beside what the planner predicts."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

from cyclopts import Parameter

from shardwise.show.cli._files import figure_file
from shardwise.show.cli._output import print_json
from shardwise.show.cli._progress import spoken
from shardwise_lab.build import Built, standing
from shardwise_lab.cables import plant_of
from shardwise_lab.cases import OPS, LabCase
from shardwise_lab.cli._flags import (
    DryRun,
    FabricFlags,
    Html,
    Json,
    Limit,
    Overwrite,
    Realtime,
    become_root,
    limit_of,
    order_of,
)
from shardwise_lab.cli._page import show_demo, show_plan, show_run
from shardwise_lab.cli.stands import standing_lab
from shardwise_lab.command import command_ran
from shardwise_lab.demos import DEMOS, Setting, demo_named
from shardwise_lab.emulated import Emulated, emulated_of
from shardwise_lab.facts import Measured
from shardwise_lab.faults import Fault, check_faults, fault_of, happening
from shardwise_lab.job_told import checked_job
from shardwise_lab.jobs import job_of
from shardwise_lab.knobs import size_of
from shardwise_lab.marking import marking
from shardwise_lab.measured import check_bounds, measured_on, watching
from shardwise_lab.names import STAYS
from shardwise_lab.order import TRAININGS, LabWorld
from shardwise_lab.page import lab_page
from shardwise_lab.plain import check_plain, plain_on
from shardwise_lab.told import seen_loads
from shardwise_lab.torchrun import at_hand, spread_out

MOST_BYTES = 16e9
MOST_CASES = 64


def demo(
    name: Annotated[str, Parameter(help=f"{', '.join(DEMOS)}.")],
    /,
    *,
    limit: Limit = "5 min",
    realtime: Realtime = True,
    html: Html = None,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> int:
    """One thing a network engineer is told about training, built, run and measured on this machine."""
    chosen, limit_s = demo_named(name), limit_of(limit)
    page = figure_file(html, overwrite, "html")
    if dry_run:
        print_json({"demo": chosen.name, "explained": chosen.explained, "comparisons": [], "runs": []})
        return 0
    become_root()
    with spoken() as said:
        found = chosen.played(Setting(limit_s=limit_s, realtime=realtime, said=said))
    if page is not None:
        title = f"{found.demo}: measured on an emulated fabric"
        page.write(lab_page(title, found.runs, found.explained, found.comparisons).encode())
    if json:
        print_json(found)
    else:
        show_demo(found)
    return 0


def run(
    *command: Annotated[str, Parameter(help="After '--': your own, on every GPU, as 'torchrun train.py'.")],
    on: Annotated[
        str | None, Parameter(help="A fabric of `lab list` or any cluster; default: the one up, or star4.")
    ] = None,
    collective: Annotated[str, Parameter(help=f"Some of {', '.join(OPS)}.")] = "all_reduce",
    sizes: Annotated[str, Parameter(help="Of its buffer, several by ','.")] = "256 kB,1 MB",
    times: Annotated[int, Parameter(help="Repetitions of each; medians are shown.")] = 3,
    order: Annotated[
        str | None, Parameter(help="The GPU of each rank, such as 0,4,1,5; default: as they stand.")
    ] = None,
    train: Annotated[
        str | None,
        Parameter(
            help=(
                "A small training instead: ddp or fsdp (torch's own), or one of `shardwise run`: dp, tp=2,pp=2, cp, "
                "ep, zero=3, sync=diloco,every=2."
            )
        ),
    ] = None,
    fabric: FabricFlags = FabricFlags(),  # noqa: B008  frozen
    cut: Annotated[
        list[str] | None, Parameter(negative=(), help="Cut a cable this many seconds after the start: 'LINK@2'.")
    ] = None,
    slow_at: Annotated[list[str] | None, Parameter(negative=(), help="Slow a link then: 'LINK=0.25@2'.")] = None,
    limit: Limit = "2 min",
    realtime: Realtime = True,
    html: Html = None,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> int:
    """Collectives, a small training or your own command on an emulated fabric. Exit code 1 when a rank failed."""
    limit_s = limit_of(limit)
    up = standing_lab() if on is None else None
    if up is not None and fabric != FabricFlags():
        raise ValueError(
            "on: a lab is up, with a fabric of its own; write --on FABRIC for another, or 'lab down' first"
        )
    built = emulated_of(up.on, up.knobs) if up is not None else fabric.fabric(on or "star4")
    seats = order_of(order, built.gpus)
    faults = [*(fault_of(each, "cut") for each in cut or ()), *(fault_of(each, "slow-at") for each in slow_at or ())]
    check_faults(built, faults)
    words, taken = spread_out(command, len(seats))
    words = at_hand(words) if words else []
    worlds = [] if command else [_world(collective, sizes, times, seats, train)]
    check_bounds(built, worlds, limit_s, MOST_BYTES)
    if built.knobs.connections > 1:
        if command or train is not None:
            raise ValueError("connections: a command or training makes its own; leave --connections out")
        check_plain(worlds[0].cases)
    page = figure_file(html, overwrite, "html")
    if dry_run:
        show_plan(built, "0", json=json, done=False)
        return 0
    if up is None:
        become_root()
    with _lab(built, up is not None) as here, marking(here):
        if command:
            found, code, notes = _own(here, words, seats, faults, limit_s)
            notes += [f"one rank on each GPU instead of {taken}"] if taken else []
        else:
            with happening(here, faults):
                found, code, notes = _measured(here, worlds, limit_s, realtime=realtime), 0, []
    if page is not None:
        page.write(lab_page(f"A job on {found.fabric}, emulated", [found]).encode())
    if json:
        print_json({"run": found, "failed": bool(code), "notes": notes})
    else:
        show_run(found, notes)
    return code


@contextmanager
def _lab(fabric: Emulated, is_up: bool) -> Iterator[Built]:
    if is_up:
        yield Built(STAYS, fabric, plant_of(fabric))
        return
    with standing(fabric) as built:
        yield built


def _measured(built: Built, worlds: list[LabWorld], limit_s: float, *, realtime: bool) -> Measured:
    if built.fabric.knobs.connections > 1:
        return plain_on(built, worlds[0], limit_s, realtime=realtime)
    return measured_on(built, worlds, limit_s, realtime=realtime)


def _own(
    built: Built, command: Sequence[str], order: Sequence[int], faults: list[Fault], limit_s: float
) -> tuple[Measured, int, list[str]]:
    watched = tuple(cable.back for cable in built.plant.cables)[:8]
    with spoken() as said, watching(built, watched) as watch:
        said(f"{command[0]} on {len(order)} GPUs")
        begun = time.monotonic()
        with happening(built, faults):
            seconds, codes, words = command_ran(built, command, order, limit_s)
    bad = [rank for rank, code in enumerate(codes) if code]
    notes = [f"{command[0]}: {seconds:.3g} s on {len(order)} GPUs"]
    if bad:
        notes.append(
            f"ranks {', '.join(map(str, bad))} ended with {', '.join(str(codes[rank]) for rank in bad)}: {words}"
        )
    assert watch.samples is not None
    loads = seen_loads(built.fabric, command[0], begun, begun + seconds, watch.samples)
    return watch.facts(loads=loads), int(bool(bad)), notes


def _world(collective: str, sizes: str, times: int, order: tuple[int, ...], train: str | None) -> LabWorld:
    if train is not None:
        if train in TRAININGS:
            return LabWorld(order=order, training=train, steps=times)
        return checked_job(LabWorld(order=order, job=job_of(train, len(order)), steps=times))
    cases = tuple(
        LabCase(op=op.strip(), bytes=size_of(size.strip(), "sizes"), times=times)
        for op in collective.split(",")
        for size in sizes.split(",")
    )
    if len(cases) > MOST_CASES:
        raise ValueError(f"sizes: {len(cases)} cases; write at most {MOST_CASES}")
    return LabWorld(order=order, cases=cases)
