"""One byte of a right file made wrong, for every kind of file that a verb reads."""

import os
import random
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from _hostile_runs import CPU_S, MEMORY_BYTES, RunOutcome
from fuzz.samples import launch_files, samples
from shardwise.event_record import record
from shardwise.run.runtime.train.tensorboard import event
from shardwise.show.cli import main

PAIRS = "fabric expect --on dgx-h100:16 --pairs F"
PLACE = "place plan.json --topology F"
CALIBRATE = "calibrate --from F --out new.toml --overwrite --on 8xh200"
LINES = {
    "nccl.txt": CALIBRATE, "nccl.json": CALIBRATE, "trace.json": CALIBRATE, "topology.xml": "catalog clusters --from F",
    "matrix.txt": "catalog clusters --from F", "pairs.csv": PAIRS, "pairs.json": PAIRS,
    "hosts.txt": "fabric expect --on dgx-h100:24 --hosts F", "runs.csv": "validate --data F",
    "config.json": "catalog models F", "mlp.json": "catalog models F", "site.yaml": "catalog clusters F",
    "plan.json": "export F --to megatron",
    "estimate.json": "export F --to megatron", "rank0.json": "why F", "dump_0": "why F", "job.sqlite": "why F",
    "clocks.csv": "why F", "steps.csv": "why F", "events.tfevents": "why F", "train.sh": "check F",
    "profile.toml": "estimate llama-3-8b --on 8xh200 --profile F", "facts.json": "preflight --gather F",
    "products.yaml": "search cuts --graph F --on 4xh100", "prices.toml": "fabric gpt2-xl --on dgx-h100:16 --prices F",
    "routing.txt": "search mixtral-8x7b --on dgx-h100:16 --ep 8 --problem experts --routing F",
}  # fmt: skip


@dataclass(frozen=True)
class DamagedFile:
    name: str
    content: bytes
    words: list[str]
    at: int


def whole_files() -> dict[str, tuple[bytes, list[str]]]:
    """By name: the content, and the words that read it; doctor and watch read logs and events, too."""
    scalars = [event(float(n), n, scalars={"step_time": 1.0, "loss": 1.5}) for n in range(1, 6)]
    events = [event(1.0, 0, version="brain.Event:2"), *scalars]
    raw = samples() | {"events.tfevents": b"".join(map(record, events))}
    lines = LINES | dict.fromkeys(launch_files(), "check F")
    lines |= {name: PLACE for name in raw if name.startswith("site-")}
    lines |= {name: "why F" for name in raw if name.endswith("-run.log")}
    found = {name: (raw[name], line.replace("F", f"odd-{name}", 1).split()) for name, line in lines.items()}
    for verb, words in (("doctor", ["doctor", "."]), ("watch", ["watch", "odd-events.tfevents", "--once"])):
        found[f"{verb} of events"] = raw["events.tfevents"], words
    return found


def damaged_files(count: int, seed: int) -> Iterator[DamagedFile]:
    """So many of each."""
    for what, (content, words) in whole_files().items():
        draw = random.Random(f"{seed} {what}")
        name = "odd-events.tfevents" if what.endswith("of events") else f"odd-{what}"
        for _ in range(count):
            at = draw.randrange(len(content))
            byte = draw.choice((content[at] ^ 1 << draw.randrange(8), draw.randrange(256), 0, 255, ord('"'), ord("9")))
            yield DamagedFile(name, content[:at] + bytes([byte]) + content[at + 1 :], words, at)


def run_forked(words: list[str], folder: Path) -> RunOutcome:
    """In a fork of this process, which has imported all of shardwise that it needs: no start is paid for."""
    out, err = folder.parent / "stdout", folder.parent / "stderr"
    pid = os.fork()
    if not pid:
        try:
            os.chdir(folder)
            for number, path in ((1, out), (2, err)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 5))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            code = main(words)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        finally:
            os._exit(70)
    _, status, used = os.wait4(pid, 0)
    code, cpu_s = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
    return RunOutcome(code, cpu_s, used.ru_maxrss * 1024, out.read_bytes(), err.read_bytes())
