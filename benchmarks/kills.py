"""Kills ranks and launchers of runs, damages their checkpoints, and holds what comes of it against quiet runs.

    python benchmarks/kills.py --json [--seed N]

kills: SIGKILLs sent to a live rank or launcher; tries: runs they were sent to, each of which was started again until it
had made its last step; bitwise_equal: how many of those have the losses of a quiet run at every step, repeated ones
too, and the weights and moments of its last checkpoint, bit for bit (after a change of layout: those of a quiet run
that changed at the same step); orphans: processes left; leftovers: files left in the temporary folder, semaphores, half
checkpoints, locks. stops_named: of stops_tried runs with a killed rank and no restart, how many ended with exit code 1
and said which rank and which signal. damaged_fell_back: of damaged_tried runs whose newest checkpoint was damaged, how
many said so and went on from the one before, bit for bit; among them manifests written again with every checksum right.
folders_kept: of folders_tried runs whose folder was renamed while they saved, how many ended with exit code 1, named
it, made no other, left it to another run, and went on bit for bit when it had its name again. bits_noticed: of
bits_flipped, one at a time, how many were found, half of them by loading.
"""

import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter

import torch

from _kills_damage import KINDS, flip, some_bits
from _kills_runs import (
    CONFIG,
    EVERY,
    STEPS,
    KilledRun,
    after,
    during_save,
    restarted_and,
    steps_made,
)
from shardwise.run.runtime.checkpoints.check import check_bytes
from shardwise.run.runtime.checkpoints.folder import newest
from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint
from shardwise.run.runtime.checkpoints.state import load
from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.run.runtime.train.optimizer import OptimizerSettings
from shardwise.run.runtime.train.task import Task
from shardwise.spec.arch import model_of
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.user_cache import keep_compiled_code_private

SAME_LAYOUT = ("dp 2", "dp 2, zero 3", "tp 2", "pp 2")
RANK_TRIES, LAUNCHER_TRIES, CHANGE_TRIES, STOP_TRIES, FOLDER_TRIES = 22, 14, 6, 8, 4
BITS = 2000


@dataclass
class KillTally:
    kills: int = 0
    tries: int = 0
    bitwise_equal: int = 0
    orphans: int = 0
    leftovers: int = 0
    stops_tried: int = 0
    stops_named: int = 0
    damaged_tried: int = 0
    damaged_fell_back: int = 0
    folders_tried: int = 0
    folders_kept: int = 0
    bits_flipped: int = 0
    bits_noticed: int = 0


class KillBench:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw, self.tally = folder, random.Random(seed), KillTally()
        self.model = folder / "config.json"
        self.model.write_text(json.dumps(CONFIG))
        self._count = 0
        self.quiet: dict[str, KilledRun] = {}

    def fresh(self, layout: str, *more: str) -> KilledRun:
        self._count += 1
        return KilledRun(self.model, self.folder / f"run-{self._count:03}", layout, more)

    def quiet_run(self, layout: str) -> KilledRun:
        """Undisturbed; made once."""
        if layout not in self.quiet:
            run = self.fresh(layout)
            run.start()
            assert run.wait() == 0, run.told
            self.quiet[layout] = run
        return self.quiet[layout]

    def judge(self, run: KilledRun, wanted: KilledRun, what: str) -> None:
        """When it has made its last step."""
        code = run.wait()
        right, made = dict(wanted.losses()), run.losses()
        equal = code == 0 and all(right[step] == loss for step, loss in made) and {s for s, _ in made} == set(right)
        equal = equal and run.weights() == wanted.weights()
        self.count(run, equal)
        print(f"{what}: {run.kills} kills, {'bit for bit' if equal else f'DIFFERS (code {code})'}", file=sys.stderr)
        if not equal:
            print(run.told, file=sys.stderr)

    def count(self, run: KilledRun, equal: bool) -> None:
        tally = self.tally
        tally.kills += run.kills
        tally.tries += 1
        tally.bitwise_equal += equal
        tally.orphans += run.orphans()
        self.left(run.leftovers())

    def left(self, names: list[str]) -> None:
        self.tally.leftovers += len(names)
        if names:
            print(f"LEFT: {', '.join(names)}", file=sys.stderr)

    def moment(self) -> tuple[str, Callable[[KilledRun], bool]]:
        made = self.draw.randrange(1, STEPS - 3)
        delay = self.draw.uniform(0.0, 0.4)
        return self.draw.choice([
            (f"after step {made}", steps_made(made)), ("while saving", during_save),
            (f"{delay:.2f} s after its start", after(delay)),
        ])  # fmt: skip

    def ranks_are_killed(self, layout: str, times: int = 3) -> None:
        """The launcher starts all ranks again, and again one of them is hit: while they load, or later."""
        wanted, run = self.quiet_run(layout), self.fresh(layout, "--max-restarts", str(times), *self.waiting())
        told = []
        run.start()
        for number in range(times):
            what, moment = self.moment()
            victim = self.draw.randrange(2)
            run.kill_when(restarted_and(moment) if number else moment, victim)
            told.append(f"rank {victim} {what}")
        self.judge(run, wanted, f"{layout}, {', '.join(told)}")

    def launcher_is_killed_twice(self, layout: str) -> None:
        wanted, run = self.quiet_run(layout), self.fresh(layout, *self.waiting())
        (first, one), (second, two) = self.moment(), self.moment()
        for moment in (one, two):
            run.start()
            if run.kill_when(moment, None):
                os.waitpid(run.pid, 0)
            else:
                run.wait()
        run.start()
        self.judge(run, wanted, f"{layout}, the launcher {first}, again {second}")

    def layout_changes(self, layout: str, other: str) -> None:
        """The launcher is killed, then a quiet run and one that is killed go on in another layout, from copies."""
        begun = self.fresh(layout)
        begun.start()
        if begun.kill_when(steps_made(EVERY + self.draw.randrange(4)), None):
            os.waitpid(begun.pid, 0)
        wanted, run = self.fresh(other), self.fresh(other, "--max-restarts", "2")
        for copy in (wanted, run):
            shutil.copytree(begun.folder, copy.folder)
        wanted.start()
        assert wanted.wait() == 0, wanted.told
        run.kills += begun.kills
        run.start()
        run.kill_when(steps_made(self.draw.randrange(2)), 0)
        self.judge(run, wanted, f"{layout}, then {other}")

    def stop_is_named(self, layout: str) -> None:
        """No restart: the run ends and says why; then it goes on."""
        wanted, run = self.quiet_run(layout), self.fresh(layout)
        victim = self.draw.randrange(2)
        run.start()
        killed = run.kill_when(steps_made(self.draw.randrange(1, STEPS - 2)), victim)
        code = run.wait()
        self.tally.stops_tried += killed
        self.tally.stops_named += killed and code == 1 and f"rank {victim} was killed by signal 9" in run.told
        run.start()
        self.judge(run, wanted, f"{layout}, rank {victim}, no restart")

    def waiting(self) -> tuple[str, ...]:
        return self.draw.choice([(), ("--no-async-checkpoints",)])

    def newest_is_damaged(self, layout: str, kind: str) -> None:
        wanted, run = self.quiet_run(layout), self.fresh(layout)
        shutil.copytree(wanted.folder, run.folder)
        newest_one = run.folder / f"step-{STEPS:08}"
        KINDS[kind](newest_one)
        run.start()
        code = run.wait()
        before = STEPS - EVERY
        right = dict(wanted.losses())
        fell_back = (
            code == 0 and f"{newest_one.name} is damaged" in run.told and f"resumed after step {before}" in run.told
            and run.losses() == [(step, right[step]) for step in range(before + 1, STEPS + 1)]
            and run.weights() == wanted.weights() and not run.folder.with_suffix(".executed").exists()
            and (run.folder / f"{newest_one.name}.aside-1").exists()
        )  # fmt: skip
        self.tally.damaged_tried += 1
        self.tally.damaged_fell_back += fell_back
        print(f"{kind}: {'fell back' if fell_back else f'DID NOT FALL BACK: {run.told}'}", file=sys.stderr)

    def folder_is_renamed(self, layout: str) -> None:
        """A second run begins under its name, in a folder of its own; then the first has its folder again."""
        wanted, run, other = self.quiet_run(layout), self.fresh(layout), self.fresh(layout)
        moved = run.folder.with_suffix(".moved")
        run.start()
        renamed = run.when(during_save, lambda: run.folder.rename(moved))
        code = run.wait()
        said = "was renamed, removed or replaced during the run" in run.told and not run.folder.exists()
        other.folder = run.folder
        other.start()
        alone = other.wait() == 0 and other.weights() == wanted.weights() and not other.leftovers()
        shutil.rmtree(run.folder)
        moved.rename(run.folder)
        run.start()
        right = dict(wanted.losses())
        again = run.wait() == 0 and run.weights() == wanted.weights() and not run.leftovers()
        again = again and all(right[step] == loss for step, loss in run.losses())
        kept = renamed and code == 1 and said and alone and again
        self.tally.folders_tried += 1
        self.tally.folders_kept += kept
        self.tally.orphans += run.orphans() + other.orphans()
        print(f"{layout}, its folder renamed: {'kept' if kept else f'NOT KEPT (code {code}): {run.told}'}",
              file=sys.stderr)  # fmt: skip

    def bits_are_flipped(self, count: int) -> None:
        """One at a time: half are looked for by reading all bytes, half by loading into a model."""
        path = newest(self.quiet_run("dp 2").folder)
        assert path is not None
        engine = small_engine()
        for number, (file, bit) in enumerate(some_bits(path, count, self.draw)):
            flip(file, bit)
            try:
                check_bytes(path) if number // 2 % 2 else load(engine, path)
                print(f"NOT NOTICED: bit {bit} of {file.name}", file=sys.stderr)
            except DamagedCheckpoint:
                self.tally.bits_noticed += 1
            flip(file, bit)
            self.tally.bits_flipped += 1
        check_bytes(path)


def small_engine() -> TrainingEngine:
    """Of the runs' model, on one rank in this process."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json.dumps(CONFIG))
        file.flush()
        model = model_of(file.name)
    job = Job(seq=16, global_batch=6, precision=PRECISIONS["fp32"])
    task = Task(model=model, job=job, policy=Policy(zero=0, sp=False), stack=stack_of("shardwise"))
    return TrainingEngine(task, torch.device("cpu"), OptimizerSettings())


def tried(seed: int, *, share: float = 1.0) -> KillTally:
    """`share` of all tries."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="shardwise-kills-") as name:
        temporary = Path(name) / "tmp"
        temporary.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        try:
            bench = KillBench(Path(name), seed)
            keep_compiled_code_private()
            small_engine()  # what a run imports late is imported once, here, and not by every fork

            def some(count: int) -> list[str]:
                return list(islice(cycle(SAME_LAYOUT), max(round(count * share), 1)))

            for layout in some(RANK_TRIES):
                bench.ranks_are_killed(layout)
            for layout in some(LAUNCHER_TRIES):
                bench.launcher_is_killed_twice(layout)
            for layout, other in zip(some(CHANGE_TRIES), cycle(("dp 3", "one rank", "pp 2")), strict=False):
                bench.layout_changes(layout, other)
            for layout in some(STOP_TRIES):
                bench.stop_is_named(layout)
            for layout in some(FOLDER_TRIES):
                bench.folder_is_renamed(layout)
            for kind in list(KINDS)[:: max(round(1 / share), 1)]:
                bench.newest_is_damaged("dp 2", kind)
            bench.bits_are_flipped(round(BITS * share))
            bench.left([path.name for path in temporary.iterdir()])
        finally:
            del os.environ["TMPDIR"]
            tempfile.tempdir = None
    return bench.tally


def main() -> None:
    begin = perf_counter()
    seed = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 0
    tally = tried(seed)
    print(json.dumps({**vars(tally), "seconds": round(perf_counter() - begin, 1)}))


if __name__ == "__main__":
    main()
