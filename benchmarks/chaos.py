"""Kills ranks of runs that go on without them, flips bits in their memory, and compares what comes of it.

    python benchmarks/chaos.py --json [--kills N] [--between S] [--pace S] [--flips N] [--seed N]

kills: SIGKILLs sent to ranks, in the long run of 4 replicas `--between` seconds apart on average and as many as fit
into its steps: `--kills 1000 --between 15` takes four hours. bitwise_equal: runs whose weights afterwards equal, bit
for bit, a run that skipped the same micro-batches, of how many. steps_lost: steps' worth of micro-batches that lost
replicas did not make. flips, flips_found: bits flipped in one rank's gradient, weights or moments, and how many of them
were named by rank within `--every` steps. goodput_predicted: by the law that `operate` prints for replicas, from the
step and the restart measured before the chaos; goodput_measured: micro-batches made over those of the undisturbed step
in the same time; step_s_with_all: what a step with all replicas took meanwhile, which a busy machine makes longer. A
step is stretched to `--pace` seconds, as if a GPU worked.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from _chaos_runs import KINDS, ChaosRun, Flip, elastic_run, order_for, paced, skipping, weights
from shardwise.run.runtime.elastic.replicas import split_of
from shardwise.step.operate.elastic import replica_share
from shardwise.step.operate.failures import rates_of

BESIDE = ("dp 3, tp 2", "hsdp 3 x 2", "hsdp 3 x 2, zero 1")
"""layouts that are killed too, for their weights alone"""
APART = 12
"""steps between two flips: a replica is back by then"""


@dataclass
class ChaosTally:
    folder: Path
    draw: random.Random
    told: Callable[[str], None]
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


def restart_s(tally: ChaosTally, pace_s: float, step_s: float) -> float:
    """From a kill to the first step with the replica again, by a run with a few kills far apart."""
    order = order_for("dp 4", round(12.0 / step_s), "")
    with paced(pace_s):
        lines = elastic_run(order, 0, tally.draw, 2.5).result.lines
    away = sum(4 - len(line.replicas) for line in lines)
    gone = sum(
        replica in before.replicas and replica not in line.replicas
        for before, line in pairwise(lines) for replica in range(4)
    )  # fmt: skip
    return away * step_s / max(gone, 1)


def measured(kills: int, between_s: float, pace_s: float, flips: int, every: int, seed: int,
             told: Callable[[str], None]) -> dict[str, Any]:  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        tally = ChaosTally(Path(folder), random.Random(seed), told)
        told("the undisturbed step")
        with paced(pace_s):
            quiet = elastic_run(order_for("dp 4", 20, str(tally.folder / "quiet")), 0)
        tally.runs, step_s = 1, statistics.median(line.step_s for line in quiet.result.lines[2:])
        tally.same_as_skipping("dp 4", quiet)
        told("a restart")
        again_s = restart_s(tally, pace_s, step_s)
        predicted = replica_share(rates_of(f"{between_s} s", 4), 4, 4, again_s, 0.0, step_s, others_lose=0.0)
        steps = max(round(kills * between_s / step_s), 20)
        told(f"{steps} steps of {step_s:.3f} s, restarts of {again_s:.2f} s; predicted {predicted:.3f}")
        chaos = tally.outcome("dp 4", steps, pace_s, between_s)
        lines = chaos.result.lines
        made = sum(len(line.replicas) for line in lines) / 4
        for layout in BESIDE:
            told(layout)
            # rarer than a restart lasts: else every replica may be away at once, and the run ends
            try:
                tally.outcome(layout, 30, pace_s, max(2.0, 4.0 * again_s))
            except RuntimeError as failure:
                tally.missed.append(f"{layout}: {str(failure).strip().splitlines()[-1]}")
        told("flipped bits")
        tally.flipped("dp 3", flips - flips // 3, every, pace_s)
        tally.flipped("hsdp 3 x 2", flips // 3, every, pace_s)
    return {
        "kills": tally.kills, "bitwise_equal": [tally.equal, tally.runs], "steps_lost": len(lines) - made,
        "flips": tally.flips, "flips_found": tally.found, "goodput_predicted": predicted,
        "goodput_measured": made * step_s / sum(line.step_s for line in lines),
        "kills_of_4_replicas": chaos.kills, "between_s": between_s, "step_s": step_s, "restart_s": again_s,
        "steps": len(lines),
        "step_s_with_all": statistics.median(line.step_s for line in lines if len(line.replicas) == 4),
        "checksum_ms_per_step": tally.checksum_ms, "missed": tally.missed,
    }  # fmt: skip


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--json", action="store_true")
    given.add_argument("--kills", type=int, default=30, help="as many as this are expected in the long run")
    given.add_argument("--between", type=float, default=3.0, help="seconds between two kills, on average")
    given.add_argument("--pace", type=float, default=0.25, help="seconds of a step")
    given.add_argument("--flips", type=int, default=12)
    given.add_argument("--every", type=int, default=4, help="steps between two checksums of weights and moments")
    given.add_argument("--seed", type=int, default=0)
    args = given.parse_args()
    found = measured(args.kills, args.between, args.pace, args.flips, args.every, args.seed,
                     lambda line: print(line, file=sys.stderr, flush=True))  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
