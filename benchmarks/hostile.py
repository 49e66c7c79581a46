"""Gives verbs files made to hang, to fill the memory, to run something or to give a secret away, and files with one
damaged byte.

    python benchmarks/hostile.py --json [--seed N]

files: hostile files and folders, and files with one byte changed; runs: command lines that read them; hangs: runs that
took 60 s of processor time or 240 s of waiting; peak_rss_bytes: of the run that took most memory; executed: pieces of
code in files and folders that were run; secrets_shown: of secrets_tried in launch files, how many any line of `check`
printed; tracebacks: runs that ended with exit code 70, a signal or a traceback; over_memory: runs above 2 GiB. What
broke is named on stderr.
"""

import json
import random
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter

from _hostile_bytes import damaged_files, run_forked, whole_files
from _hostile_files import MARK, RUN_FILES, HostileFile
from _hostile_planted import FIRST, PLANTED, launch_files, plant, planted_runs, secret_lines, servers, shown
from _hostile_runs import RunOutcome, left_by_running, run
from _hostile_settings import SETTINGS

MOST_RSS = 2 * 2**30
DAMAGED_EACH = 6


@dataclass
class HostileTally:
    files: int = 0
    runs: int = 0
    hangs: int = 0
    peak_rss_bytes: int = 0
    over_memory: int = 0
    executed: int = 0
    secrets_tried: int = 0
    secrets_shown: int = 0
    tracebacks: int = 0


class HostileBench:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed, self.tally = folder, seed, HostileTally()
        self.temporary = folder / "tmp"
        self.temporary.mkdir()

    @cached_property
    def plan(self) -> bytes:
        """A right one, which some lines need beside the hostile file."""
        return run(["plan", "gpt2-xl", "--on", "8xh100", "--json"], self.temporary, self.temporary).out

    def fresh(self, name: str) -> Path:
        made = self.folder / name
        made.mkdir()
        return made

    def judge(self, what: str, outcome: RunOutcome) -> None:
        tally = self.tally
        tally.runs += 1
        tally.peak_rss_bytes = max(tally.peak_rss_bytes, outcome.rss_bytes)
        too_large = outcome.rss_bytes > MOST_RSS
        for name, broke in (("hangs", outcome.hung), ("tracebacks", outcome.failed), ("over_memory", too_large)):
            if broke:
                setattr(tally, name, getattr(tally, name) + 1)
                print(f"{name}: {what}: {outcome.rss_bytes / 2**20:,.0f} MiB, code {outcome.code}, {outcome.said}",
                      file=sys.stderr)  # fmt: skip

    def count_executed(self, what: str, folder: Path) -> None:
        for path in left_by_running(folder, self.temporary, mark=MARK):
            self.tally.executed += 1
            print(f"executed: {what}: {path.name}", file=sys.stderr)
            shutil.rmtree(path)

    def hostile(self, files: Iterable[HostileFile], *, forked: bool = False) -> None:
        for each in files:
            folder = self.fresh("asked")
            (folder / "plan.json").write_bytes(self.plan)
            (folder / "mlp.json").write_text(json.dumps({"model_type": "mlp", "layer_sizes": [16, 8, 4]}))
            (folder / each.name).unlink(missing_ok=True)
            each.make(folder / each.name)
            words = [each.name + word[1:] if word == "F" or word[:2] == "F/" else word for word in each.line.split()]
            self.tally.files += 1
            outcome = run_forked(words, folder) if forked else run(words, folder, self.temporary)
            self.judge(f"{each.what} ({each.line})", outcome)
            self.count_executed(each.what, folder)
            shutil.rmtree(folder)

    def damaged(self, count: int) -> None:
        folder = self.fresh("asked")
        (folder / "plan.json").write_bytes(self.plan)
        for each in damaged_files(count, self.seed):
            (folder / each.name).write_bytes(each.content)
            self.tally.files += 1
            self.judge(f"{each.name}, byte {each.at} ({' '.join(each.words)})", run_forked(each.words, folder))
            (folder / each.name).unlink()
        shutil.rmtree(folder)

    def planted(self) -> None:
        for names in (PLANTED, FIRST):  # apart: a child that takes one of the second comes to none of the first
            folder = self.fresh("asked")
            plant(folder, names)
            self.tally.files += len(names)
            for what, outcome in planted_runs(folder, self.temporary) if names is PLANTED else ():
                self.judge(f"{what} in a folder with modules", outcome)
            servers(folder, self.temporary)
            self.count_executed("modules in the folder asked about", folder)
            shutil.rmtree(folder)

    def secrets(self) -> None:
        folder = self.fresh("asked")
        for name, secrets in launch_files(folder, random.Random(self.seed)).items():
            self.tally.files += 1
            told: dict[str, str] = {}
            for words in secret_lines(name):
                outcome = run(words, folder, self.temporary)
                self.judge(" ".join(words), outcome)
                told |= {secret: " ".join(words) for secret in shown(outcome, secrets)}
            self.tally.secrets_tried += len(secrets)
            self.tally.secrets_shown += len(told)
            for secret, line in told.items():
                print(f"secrets_shown: {secret[:6]}... by {line}", file=sys.stderr)
        shutil.rmtree(folder)


def tried(seed: int) -> HostileTally:
    whole_files()  # what a run imports late is imported once, here, and not by every fork
    with tempfile.TemporaryDirectory(prefix="shardwise-hostile-") as name:
        bench = HostileBench(Path(name), seed)
        for number, part in enumerate((bench.planted, bench.secrets, lambda: bench.damaged(DAMAGED_EACH),
                                       lambda: bench.hostile((*RUN_FILES, *SETTINGS)))):  # fmt: skip
            part()
            print(f"part {number + 1} of 4 done, {bench.tally.runs} runs", file=sys.stderr)
    return bench.tally


def main() -> None:
    begin = perf_counter()
    seed = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 0
    tally = tried(seed)
    print(json.dumps({**vars(tally), "seconds": round(perf_counter() - begin, 1)}))


if __name__ == "__main__":
    main()
