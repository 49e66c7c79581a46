"""Kills ranks of runs that go on without them, flips bits in their memory, and compares what comes of it.

    python benchmarks/chaos.py --json [--kills N] [--between S] [--pace S] [--flips N] [--seed N]
    python benchmarks/chaos.py --json --kills 1000 --between 15 --pace 1 --at-once 5 --done FILE --minutes 60

kills: SIGKILLs sent to ranks, in long runs of 4 replicas `--between` seconds apart on average. bitwise_equal: runs
whose weights afterwards equal, bit for bit, a run that skipped the same micro-batches, of how many. steps_lost: steps'
worth of micro-batches that lost replicas did not make. flips, flips_found: bits flipped in one rank's gradient, weights
or moments, and how many of them were named by rank within `--every` steps. goodput_predicted: by the law that `operate`
prints for replicas, from the step, the restart and the pauses of the others measured before the chaos, which is written
to FILE before it; goodput_measured: micro-batches made over those of the undisturbed step in the same time by the
clock; step_s_with_all: what a step with all replicas took meanwhile, which a busy machine makes longer. A step is
stretched to `--pace` seconds, as if a GPU worked.

A long run ends after about `--run` kills and is compared; the next begins. `--at-once` of them go on beside each other;
with `--done FILE` finished ones are kept and counted, `--minutes 60` stops behind those that are running then, and the
same command goes on, until there are `--kills` in all.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

from _chaos_runs import KINDS, ChaosRun, Flip, elastic_run, order_for, paced, skipping, weights
from shardwise.run.runtime.elastic.replicas import split_of
from shardwise.run.runtime.parent import die_with_parent
from shardwise.step.operate.elastic import replica_share
from shardwise.step.operate.failures import rates_of

BESIDE = ("dp 3, tp 2", "hsdp 3 x 2", "hsdp 3 x 2, zero 1")
"""layouts that are killed too, for their weights alone"""
APART = 12
"""steps between two flips: a replica is back by then"""
REPLICAS = 4


@dataclass
class ChaosTally:
    folder: Path
    draw: random.Random
    kills: int = 0
    runs: int = 0
    equal: int = 0
    flips: int = 0
    found: int = 0
    missed: list[str] = field(default_factory=list)
    checksum_ms: float = 0.0

    def outcome(self, layout: str, steps: int, pace_s: float, between_s: float) -> ChaosRun:
        """Killed, and compared with the run that skips as much."""
        self.runs += 1
        out = str(self.folder / f"run-{self.runs}")
        order = order_for(layout, steps, out)
        with paced(pace_s):
            run = elastic_run(order, 0, self.draw, between_s)
        self.kills += run.kills
        if not self.same_as_skipping(layout, run):
            self.missed.append(f"{layout}: {run.result.stopped or run.result.unwritten or 'other weights'}")
        return run

    def same_as_skipping(self, layout: str, run: ChaosRun) -> bool:
        out = self.folder / f"reference-{self.runs}"
        taken = [line.replicas for line in run.result.lines]
        skipping(order_for(layout, len(taken), str(out)), taken)
        same = bool(run.result.exported) and weights(run.result.exported) == weights(str(out))
        self.equal += same
        return same

    def flipped(self, layout: str, count: int, every: int, pace_s: float) -> None:
        split = split_of(order_for(layout, 1, ""))
        flips = [
            Flip(APART * (n + 1) + self.draw.randrange(every), self.draw.randrange(split.replicas),
                 self.draw.randrange(split.ranks), KINDS[n % len(KINDS)], self.draw.random(), self.draw.randrange(32))
            for n in range(count)
        ]  # fmt: skip
        with paced(pace_s, flips):
            run = elastic_run(order_for(layout, APART * (count + 2), ""), every)
        self.checksum_ms = 1e3 * run.result.checksum_s / max(len(run.result.lines), 1)
        self.flips += count
        for one in flips:
            rank = f"rank {one.replica * split.ranks + one.place},"
            near = [f"noticed at step {one.step + 1 + later}" for later in range(every)]
            if any(text.startswith(rank) and text.endswith(tuple(near)) for text in run.result.remarks):
                self.found += 1
            else:
                self.missed.append(f"{layout}: {one}")


@dataclass(frozen=True)
class Undisturbed:
    """Measured before the chaos."""

    step_s: float
    replaced_s: float
    """from a kill until the replica could take part again"""
    pause_s: float
    """what the others wait when one leaves or joins"""

    def share(self, between_s: float) -> float:
        rates = rates_of(f"{between_s} s", REPLICAS)
        return replica_share(
            rates, REPLICAS, REPLICAS, self.replaced_s, self.pause_s, self.step_s, others_lose=0.0
        )  # fmt: skip


def undisturbed(tally: ChaosTally, pace_s: float, apart_s: float, kills: int) -> Undisturbed:
    """By twenty quiet steps, compared too, and a run with a few kills."""
    with paced(pace_s):
        quiet = elastic_run(order_for("dp 4", 20, str(tally.folder / "quiet")), 0)
    tally.runs += 1
    tally.same_as_skipping("dp 4", quiet)
    step_s = statistics.median(after - before for before, after in pairwise(quiet.told_at[2:]))
    with paced(pace_s):
        run = elastic_run(order_for("dp 4", round(kills * apart_s / step_s), ""), 0, tally.draw, apart_s)
    lines, took = run.result.lines, [after - before for before, after in pairwise(run.told_at)]
    away = gone = changes = 0
    late = 0.0
    for (before, after), seconds in zip(pairwise(lines), took, strict=True):
        left, back = set(before.replicas) - set(after.replicas), set(after.replicas) - set(before.replicas)
        away += REPLICAS - len(after.replicas)
        gone += len(left)
        if left or back:
            changes += len(left) + len(back)
            late += seconds - step_s
    # it is away for the step that it leaves and for that in which it is ready again: half of each on average
    return Undisturbed(step_s, max(away * step_s / max(gone, 1) - step_s, 0.0), max(late / max(changes, 1), 0.0))


@dataclass
class LongRuns:
    """Of four replicas, whose finished ones are lines of a file."""

    done: Path
    kills: int
    between_s: float
    pace_s: float
    run: int
    """kills in one of them"""
    until: float
    seed: int

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.done.read_text().splitlines()] if self.done.exists() else []

    def add(self, row: dict[str, Any]) -> None:
        with self.done.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def over(self) -> bool:
        return sum(row.get("kills", 0) for row in self.rows()) >= self.kills or monotonic() > self.until

    def go_on(self, number: int) -> None:
        """One worker: what is undisturbed first, then run after run."""
        draw = random.Random(f"{self.seed} {number} {len(self.rows())}")
        with tempfile.TemporaryDirectory() as folder:
            tally = ChaosTally(Path(folder), draw)
            before = undisturbed(tally, self.pace_s, min(self.between_s, 8.0), 10)
        predicted = before.share(self.between_s)
        self.add({"predicted": predicted, **vars(before), "equal": tally.equal, "runs": 1, "missed": tally.missed})
        while not self.over():
            lacking = self.kills - sum(row.get("kills", 0) for row in self.rows())
            steps = max(round(min(self.run, lacking) * self.between_s / before.step_s), 20)
            with tempfile.TemporaryDirectory() as folder:
                tally = ChaosTally(Path(folder), draw)
                try:
                    run = tally.outcome("dp 4", steps, self.pace_s, self.between_s)
                except RuntimeError as failure:
                    self.add({"equal": 0, "runs": 1, "missed": [str(failure).strip().splitlines()[-1]]})
                    continue
            self.add(row_of(tally, run, before.step_s, predicted))


def row_of(tally: ChaosTally, run: ChaosRun, step_s: float, predicted: float) -> dict[str, Any]:
    lines, took = run.result.lines[1:], [after - before for before, after in pairwise(run.told_at)]
    whole = [seconds for line, seconds in zip(lines, took, strict=True) if len(line.replicas) == REPLICAS]
    return {
        "kills": run.kills, "equal": tally.equal, "runs": tally.runs, "missed": tally.missed, "steps": len(lines),
        "made": sum(len(line.replicas) for line in lines) / REPLICAS, "seconds": sum(took), "step_s": step_s,
        "goodput_predicted": predicted, "step_s_with_all": statistics.median(whole),
    }  # fmt: skip


def beside(tally: ChaosTally, pace_s: float, flips: int, every: int, told: Callable[[str], None]) -> None:
    for layout in BESIDE:
        told(layout)
        # rarer than a restart lasts: else every replica may be away at once, and the run ends
        try:
            tally.outcome(layout, max(20, round(12.0 / pace_s)), pace_s, 4.0)
        except RuntimeError as failure:
            tally.missed.append(f"{layout}: {str(failure).strip().splitlines()[-1]}")
    if flips:
        told("flipped bits")
        tally.flipped("dp 3", flips - flips // 3, every, pace_s)
        tally.flipped("hsdp 3 x 2", flips // 3, every, pace_s)


def side_by_side(runs: LongRuns, at_once: int) -> None:
    """Workers are forked: they share what is imported."""
    workers = []
    for number in range(at_once):
        if not (pid := os.fork()):
            code = 1
            try:
                die_with_parent()
                runs.go_on(number)
                code = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stderr.flush()
                os._exit(code)
        workers.append(pid)
    if any(os.waitpid(pid, 0)[1] for pid in workers):
        raise SystemExit("a long run ended with an error, which is above")


def figures(rows: list[dict[str, Any]], tally: ChaosTally, between_s: float) -> dict[str, Any]:
    runs = [row for row in rows if "kills" in row]
    if not runs:
        raise SystemExit("no long run was finished; write more --minutes")
    seconds = sum(row["seconds"] for row in runs)

    def weighed(name: str) -> float:
        return float(sum(row[name] * row["seconds"] for row in runs) / seconds)

    before = [row for row in rows if "predicted" in row]
    return {
        "kills": tally.kills + sum(row["kills"] for row in runs),
        "bitwise_equal": [tally.equal + sum(row["equal"] for row in rows), tally.runs + sum(r["runs"] for r in rows)],
        "steps_lost": sum(row["steps"] - row["made"] for row in runs), "flips": tally.flips,
        "flips_found": tally.found, "goodput_predicted": weighed("goodput_predicted"),
        "goodput_measured": sum(row["made"] * row["step_s"] for row in runs) / seconds,
        "kills_of_4_replicas": sum(row["kills"] for row in runs), "between_s": between_s, "long_runs": len(runs),
        "hours": seconds / 3600, "steps": sum(row["steps"] for row in runs), "step_s": weighed("step_s"),
        "step_s_with_all": weighed("step_s_with_all"),
        "restart_s": statistics.mean(row["replaced_s"] for row in before),
        "pause_s": statistics.mean(row["pause_s"] for row in before), "checksum_ms_per_step": tally.checksum_ms,
        "missed": [*tally.missed, *(one for row in rows for one in row["missed"])],
    }  # fmt: skip


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--json", action="store_true")
    given.add_argument("--kills", type=int, default=30, help="so many in the long runs together")
    given.add_argument("--between", type=float, default=3.0, help="seconds between two kills, on average")
    given.add_argument("--pace", type=float, default=0.25, help="seconds of a step")
    given.add_argument("--run", type=int, default=30, help="kills after which a long run ends, about")
    given.add_argument("--at-once", type=int, default=1, help="long runs beside each other")
    given.add_argument("--done", type=Path, help="finished long runs are kept here")
    given.add_argument("--minutes", type=float, default=1e6, help="no further long run begins then")
    given.add_argument("--flips", type=int, default=12)
    given.add_argument("--every", type=int, default=4, help="steps between two checksums of weights and moments")
    given.add_argument("--seed", type=int, default=0)
    args = given.parse_args()

    def told(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        until = monotonic() + 60.0 * args.minutes
        done = args.done or Path(folder) / "done"
        runs = LongRuns(done, args.kills, args.between, args.pace, args.run, until, args.seed)
        told(f"long runs of 4 replicas, {args.at_once} beside each other")
        if not runs.over():
            side_by_side(runs, args.at_once)
        tally = ChaosTally(Path(folder), random.Random(args.seed))
        beside(tally, args.pace, args.flips, args.every, told)
        print(json.dumps(figures(runs.rows(), tally, args.between)))


if __name__ == "__main__":
    main()
