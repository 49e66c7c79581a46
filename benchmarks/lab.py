"""Real collectives on emulated fabrics against the flow model: one calibration number, nothing fitted.

Seven fabrics of network namespaces, ten orders of ranks on them, gloo's collectives by size: measured time and bytes of
every port beside what `fabric/` predicts, and beside a model that knows cards and no switches; then the packet engine:
its speed, its distance to fluid rates, and queues and times of three demonstrations beside its own. Needs root (or what
`shardwise lab list` asks for); says so and ends with 0 where it cannot run. `--json` ends with one line.

Other work on the machine can only make a case longer: one whose turns differ while cores were waited for is run again,
twice at most, and the shortest counts. Last, trainings of the runtime in every kind of parallelism. `--write` puts
the tables of what ran into docs/lab.md; `--demos` plays the ten demonstrations instead.
"""

import argparse
import json
import sys
from statistics import mean, median
from typing import Any

from msgspec import structs

import _packets
from _lab_page import (
    LONG,
    blind_mape,
    demos_table,
    fabrics_table,
    jobs_table,
    long_rings,
    mape,
    played_demos,
    written,
)
from shardwise_lab.build import standing
from shardwise_lab.cases import LabCase
from shardwise_lab.demos.placed import ACROSS_RAILS, ALIGNED, INTERLEAVED, OVER_RAILS, SLOWED
from shardwise_lab.emulated import emulated_of
from shardwise_lab.facts import LabRow, Measured
from shardwise_lab.jobs import job_of
from shardwise_lab.knobs import Knobs
from shardwise_lab.measured import measured_on
from shardwise_lab.order import LabWorld
from shardwise_lab.probe import allowed

MBIT = 1e6 / 8
OPS = ("all_reduce", "all_gather", "all_to_all", "shift")
SIZES = (64 << 10, 256 << 10, 1 << 20)
NODE_MAJOR = (0, 1, 2, 3, 7, 6, 5, 4)
TURNS = 3
AGAIN = 2
"""times that what was disturbed is run again"""
JOBS = ("dp", "zero=1", "zero=2", "zero=3", "tp", "pp", "cp", "ep", "tp=2,pp=2", "sync=psgd", "sync=dsgd,topology=ring",
        "sync=local_sgd,every=2", "sync=diloco,every=2", "sync=power_sgd", "sync=qsgd")  # fmt: skip
JOB_STEPS = 4
FABRICS: tuple[tuple[str, str, Knobs, tuple[tuple[int, ...], ...]], ...] = (
    ("one switch, 4 cards", "star4", Knobs(card_bytes_per_s=40 * MBIT), (ALIGNED[:4],)),
    ("one switch, 8 cards", "star8", Knobs(card_bytes_per_s=30 * MBIT), (ALIGNED,)),
    ("one slow card of 4", "star4", Knobs(card_bytes_per_s=40 * MBIT, slow=((SLOWED, 0.25),)), (ALIGNED[:4],)),
    ("two leaves, spine 8:1", "two-leaves", Knobs(card_bytes_per_s=40 * MBIT), (ALIGNED, INTERLEAVED)),
    ("two leaves, spine 2:1", "two-leaves", Knobs(card_bytes_per_s=30 * MBIT, oversubscription=2.0),
     (ALIGNED, INTERLEAVED)),
    ("rails, thin spine", "rails", Knobs(card_bytes_per_s=20 * MBIT), (OVER_RAILS, ACROSS_RAILS)),
    ("rails, over NVLink", "rails-pxn", Knobs(card_bytes_per_s=20 * MBIT), (NODE_MAJOR,)),
)  # fmt: skip


def cases(ranks: int) -> tuple[LabCase, ...]:
    more = (LabCase(op="reduce_scatter", bytes=LONG, times=TURNS),) if ranks == 4 else ()
    longer = (
        tuple(LabCase(op=op, bytes=2 * LONG, times=TURNS) for op in ("all_reduce", "all_to_all")) if ranks == 4 else ()
    )
    return (*(LabCase(op=op, bytes=size, times=TURNS) for size in SIZES for op in OPS), *more, *longer)


def measured(name: str, knobs: Knobs, orders: tuple[tuple[int, ...], ...], message_s: float | None) -> Measured:
    worlds = [LabWorld(order=order, cases=cases(len(order))) for order in orders]
    with standing(emulated_of(name, knobs)) as built:
        found = measured_on(built, worlds, 400.0, message_s=message_s, every_s=0.02, realtime=True)
        for _ in range(AGAIN):
            again = [row for row in found.rows if row.disturbed]
            if not again:
                break
            worlds = [LabWorld(order=order, cases=same_cases(again, order)) for order in orders]
            worlds = [world for world in worlds if world.cases]
            more = measured_on(built, worlds, 400.0, message_s=found.message_s, every_s=0.02, realtime=True)
            found = structs.replace(found, rows=tuple(better(row, more.rows) for row in found.rows))
    return found


def same_cases(rows: list[LabRow], order: tuple[int, ...]) -> tuple[LabCase, ...]:
    return tuple(LabCase(op=row.op, bytes=row.bytes, times=TURNS) for row in rows if row.order == order)


def better(row: LabRow, others: tuple[LabRow, ...]) -> LabRow:
    same = [each for each in others if (each.order, each.op, each.bytes) == (row.order, row.op, row.bytes)]
    return min([row, *same], key=lambda each: (each.disturbed, each.measured_s))


def trained(message_s: float | None) -> list[LabRow]:
    """Steps of the runtime on one switch of four cards."""
    rows = []
    with standing(emulated_of("star4", Knobs(card_bytes_per_s=30 * MBIT))) as built:
        worlds = [LabWorld(order=ALIGNED[:4], job=job_of(text, 4), steps=JOB_STEPS) for text in JOBS]
        rows = list(measured_on(built, worlds, 400.0, message_s=message_s, every_s=0.02, realtime=True).rows)
    for row in rows:
        print(f"{row.op:32} {row.measured_s * 1e3:8.1f} ms in messages  predicted {row.predicted_s * 1e3:8.1f} "
              f"{row.error:+7.1%}  bytes {row.bytes_error:.2%}", flush=True)  # fmt: skip
    return rows


def told(what: str, found: Measured) -> None:
    rows = found.rows
    again = sum(row.disturbed for row in rows)
    print(f"{what:24} {len(rows):4} points  {mape(rows):6.1%} all  {mape(long_rings(rows)):6.1%} rings from 1 MB  "
          f"{max(row.bytes_error for row in rows):6.2%} bytes  {found.retransmits} packets sent again  "
          f"{again} still disturbed  cores waited for {found.cpu_pressure:4.0%}", flush=True)  # fmt: skip


def told_jobs(rows: list[LabRow]) -> dict[str, float]:
    return {
        "job_points": len(rows),
        "job_mape": mape(rows),
        "job_bytes_error_max": max(row.bytes_error for row in rows),
    }


def told_rows(found: Measured) -> None:
    for row in found.rows:
        print(f"  {row.op:14} {row.bytes:9,} {row.measured_s * 1e3:9.1f} ms  predicted "
              f"{row.predicted_s * 1e3:9.1f}  {row.error:+7.1%}  bytes {row.bytes_error:.2%}")  # fmt: skip


def fabrics(only: str, rows: bool) -> list[tuple[str, Measured]]:
    """Of those whose name has the words; calibrated once, by the first."""
    found: list[tuple[str, Measured]] = []
    for what, name, knobs, orders in FABRICS:
        if only not in what:
            continue
        found.append((what, measured(name, knobs, orders, found[0][1].message_s if found else None)))
        told(*found[-1])
        if rows:
            told_rows(found[-1][1])
    if not found:
        raise SystemExit(f"--only: {only!r} is in no name; write a part of one of {', '.join(f[0] for f in FABRICS)}")
    return found


def summed(found: list[tuple[str, Measured]]) -> dict[str, Any]:
    rows = [row for _, run in found for row in run.rows]
    exchange = [row for row in rows if row.op == "all_to_all"]
    return {
        "points": len(rows), "fabrics": len(found), "mape": mape(rows), "ring_mape": mape(long_rings(rows)),
        "all_to_all_mape": mape(exchange), "blind_mape": blind_mape(rows),
        "bytes_error_max": max(row.bytes_error for row in rows), "bias": mean(row.error for row in rows),
        "message_s": found[0][1].message_s, "cpu_pressure": median(run.cpu_pressure for _, run in found),
        "disturbed": sum(row.disturbed for row in rows), "retransmits": sum(run.retransmits for _, run in found),
    }  # fmt: skip


def parts(options: argparse.Namespace) -> dict[str, Any]:
    """What was asked for, or all but the demonstrations."""
    if options.demos:
        results = played_demos()
        if options.write:
            written("demos", demos_table(results))
        return _packets.demos(results)
    if options.packets:
        return _packets.measure()
    answer: dict[str, Any] = {} if options.only or options.jobs else _packets.measure()
    if not options.jobs:
        found = fabrics(options.only, options.rows)
        answer = summed(found) | answer
        print(" ".join(f"{key} {value:.4g}" for key, value in answer.items() if isinstance(value, int | float)))
        if options.write and not options.only:
            written("fabrics", fabrics_table(found))
    if not options.only:
        rows = trained(answer.get("message_s"))
        answer |= told_jobs(rows)
        if options.write:
            written("trainings", jobs_table(rows))
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--rows", action="store_true", help="every point")
    parser.add_argument("--only", default="", metavar="WORDS", help="only fabrics whose name has these words")
    parser.add_argument("--packets", action="store_true", help="only the packet engine's part")
    parser.add_argument("--jobs", action="store_true", help="only trainings of the runtime")
    parser.add_argument("--demos", action="store_true", help="only the ten demonstrations")
    parser.add_argument("--write", action="store_true", help="tables of what ran into docs/lab.md")
    options = parser.parse_args()
    can = allowed()
    if can.missing or not can.root:
        why = "; ".join(can.missing) or "root: run it with sudo"
        print(f"skipped: this machine lacks {why}")
        if options.json:
            print(json.dumps({"skipped": why}))
        return 0
    answer = parts(options)
    if options.json:
        print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
