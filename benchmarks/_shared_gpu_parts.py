"""Parts of shared_gpu.py, each a process of its own: `python benchmarks/_shared_gpu_parts.py PART FILE [--device cpu]`.

A part writes what it knows to FILE as it goes on, so that one that runs out of time leaves the rest.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import torch
from msgspec.structs import replace

from _shared_gpu_timed import fabric, small, task_for, wide
from runtime import CUTS, MODELS, PLANS, evenly, order_of
from shardwise.run.runtime.share_gpu import SharedGpuSeats
from shardwise.run.runtime.train.fork import cause_line, forked
from shardwise.run.runtime.train.loop import Trainer
from shardwise.run.runtime.train.record import Recording
from shardwise.run.runtime.train.task import TrainingOrder, TrainingSettings
from shardwise.run.runtime.verify import recorded_step, verified
from shardwise.spec.job import PRECISIONS
from shardwise.spec.policy import Policy

ROOT = Path(__file__).resolve().parents[1]
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}
MOST, AT_ONCE = 8, 4
TINY = str(ROOT / "docs" / "tiny-llama.json")
JOB = ("--seq", "64", "--global-batch", "8")
Keep = Callable[..., None]
AXES = 19
"""of PLANS: one for every axis and for their products; the others are schedules and forms of models"""
PROVEN = (
    ("llama", "tp=2"), ("llama", "fsdp=2,tp=2"), ("gpt2", "pp=2"), ("gpt2", "fsdp=2"), ("nanogpt", "tp=2"),
    ("phi", "tp=2"), ("qwen3", "cp=2"), ("mixtral", "fsdp=2,ep=2"), ("bert", "tp=2"), ("vit", "fsdp=2,tp=2"),
    ("t5", "tp=2"),    ("diffusion", "fsdp=2"), ("gpt2", "pp=2,schedule=zero_bubble_h1"),
)  # fmt: skip
"""programs of `auto` and the split that each is proven under"""
PROOF = ("equal", "why", "gradient_gap", "loss_gap", "messages", "messages_equal", "memory_gap", "ranks")


def where(device: str) -> torch.device:
    return torch.device("cuda", 0) if device == "cuda" else torch.device("cpu")


def seats(device: str) -> SharedGpuSeats | None:
    return SharedGpuSeats() if device == "cuda" else None


def one_plan(order: TrainingOrder, device: str) -> tuple[list[float], float, list[Recording]]:
    """Losses, seconds of the last step, and what every rank sent."""

    def work(_: int) -> tuple[list[float], float, list[Recording]]:
        trainer = Trainer(order, where(device))
        lines = [trainer.one_step() for _ in range(order.settings.steps)]
        del trainer
        recordings, _ = recorded_step(evenly(order), where(device))
        return [line.loss for line in lines], lines[-1].step_s, recordings

    return forked(order.task.policy.gpus, work, seats(device))[0]


def named(model: str, policy: Policy, cuts: dict[str, str]) -> str:
    plain = type(policy)()
    names = ("dp", "tp", "pp", "vpp", "cp", "ep", "etp", "zero", "shard_group", "schedule", "recompute", "offload")
    told = [f"{n} {getattr(policy, n)}" for n in names if getattr(policy, n) != getattr(plain, n)]
    return " ".join([f"{model}:", *told, *cuts.values()])


def of_plans(keep: Keep, device: str, rows: list[tuple[str, Policy, dict[str, str]]]) -> None:
    """Losses against one rank of the same device, messages against their prediction."""
    rows = [row for row in rows if row[1].gpus <= MOST and (row[1].offload == "none" or device == "cpu")]
    models = dict.fromkeys(model for model, _, _ in rows)

    def alone(model: str) -> list[float]:
        return one_plan(order_of(MODELS[model], Policy(zero=0)), device)[0]

    def ran(row: tuple[str, Policy, dict[str, str]]) -> dict[str, Any]:
        model, policy, cuts = row
        order = order_of(MODELS[model], policy, cuts=cuts)
        try:
            losses, seconds, recordings = one_plan(order, device)
            checks = verified(evenly(order).task, recordings, losses[-1]).messages
        except Exception as failure:
            return {"name": named(*row), "ranks": policy.gpus, "failed": cause_line(str(failure))}
        gap = max(abs(a - b) for a, b in zip(losses, wanted[model].result(), strict=True))
        wrong = [f"{one.axis} {one.op}" for one in checks if not one.equal]
        return {
            "name": named(*row), "ranks": policy.gpus, "gap": gap, "equal": gap <= TOLERANCE["fp32"],
            "messages": len(checks), "messages_wrong": wrong, "bytes": sum(one.measured_bytes for one in checks),
            "step_ms": 1e3 * seconds,
        }  # fmt: skip

    with ThreadPoolExecutor(AT_ONCE) as pool:
        wanted = {model: pool.submit(alone, model) for model in models}
        done = []
        for row in pool.map(ran, rows):
            done.append(row)
            print(row["name"], row.get("failed") or f"{row['gap']:.1g} {row['messages_wrong']}", flush=True)
            keep(rows=done)


def axes(keep: Keep, device: str) -> None:
    of_plans(keep, device, [(model, policy, {}) for model, policy in PLANS[:AXES]])


def schedules(keep: Keep, device: str) -> None:
    of_plans(keep, device, [*((model, policy, {}) for model, policy in PLANS[AXES:]), *CUTS])


def half(keep: Keep, device: str) -> None:
    """In 16 bits, as `run` does on a GPU; experts over ranks beside the same ranks without."""
    cases = [
        ("llama", Policy(dp=2, zero=1)), ("llama", Policy(dp=2, zero=3)), ("llama", Policy(tp=2)),
        ("llama", Policy(pp=2)), ("llama", Policy(cp=2)), ("llama", Policy(tp=2, pp=2)), ("moe", Policy(dp=4)),
        ("moe", Policy(dp=4, ep=4)), ("moe", Policy(dp=4, ep=2)),
    ]  # fmt: skip

    def losses(model: str, policy: Policy, precision: str) -> list[float]:
        order = order_of(MODELS[model], policy, steps=10)
        name = "fsdp-mixed-reduce32" if precision == "bf16" and policy.zero == 3 else precision
        order = replace(order, task=replace(order.task, job=replace(order.task.job, precision=PRECISIONS[name])))

        def work(_: int) -> list[float]:
            trainer = Trainer(order, where(device))
            return [trainer.one_step().loss for _ in range(order.settings.steps)]

        return forked(policy.gpus, work, seats(device))[0]

    found: dict[str, Any] = {}
    alone = {(m, p): losses(m, Policy(zero=0), p) for m in ("llama", "moe") for p in ("fp32", "bf16")}
    found["one rank, bf16 from fp32"] = {m: _most(alone[m, "bf16"], alone[m, "fp32"]) for m in ("llama", "moe")}
    for model, policy in cases:
        for precision in ("bf16", "fp32") if model == "moe" else ("bf16",):
            name = f"{named(model, policy, {})} {precision}"
            try:
                got = losses(model, policy, precision)
                found[name] = {"gap": _most(got, alone[model, precision]), "last": got[-1],
                               "one_rank": alone[model, precision][-1]}  # fmt: skip
            except Exception as failure:
                found[name] = {"failed": cause_line(str(failure))}
            print(name, found[name], flush=True)
            keep(**found)


def _most(found: list[float], wanted: list[float]) -> float:
    """The largest relative gap of ten losses."""
    return max(abs(a / b - 1) for a, b in zip(found, wanted, strict=True))


def prove(keep: Keep, device: str) -> None:
    """Programs of `auto`, each split held against one process; every proof in a process of its own."""
    done = []
    with get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        for row in pool.imap(prove_one, [(name, cell, device) for name, cell in PROVEN]):
            done.append(row)
            print(row, flush=True)
            keep(rows=done)


def prove_one(case: tuple[str, str, str]) -> dict[str, Any]:
    from _auto_fresh import FRESH, MORE
    from _auto_hard import HARD
    from _auto_programs import PROGRAMS
    from shardwise.run.auto.on_gpu import proven_on_gpu
    from shardwise.run.auto.plan import degrees_of
    from shardwise.run.auto.program import program_of
    from shardwise.run.auto.prove import plan_of, proven
    from shardwise.run.auto.truth import truth_of

    name, cell, device = case
    known = {**FRESH, **MORE, **HARD, **PROGRAMS}[name]
    degrees = degrees_of(cell)
    try:
        program = program_of(known.build, known.batch, known.step, 3, "float64")
        if device == "cuda":
            proof, _ = proven_on_gpu(program, degrees.ranks, lambda: plan_of(program, degrees))
        else:
            proof = proven(program, plan_of(program, degrees), truth_of(program))
    except Exception as failure:
        return {"name": name, "plan": cell, "failed": cause_line(str(failure))}
    return {"name": name, "plan": cell, **{each: getattr(proof, each) for each in PROOF}}


def overlap(keep: Keep, device: str) -> None:
    """Seconds that kernels of messages and of arithmetic run at the same time, by the trace of one rank."""
    from torch.profiler import ProfilerActivity, profile

    task = task_for(wide(8, 2048, 5632, 1024), Policy(dp=2, zero=1), 1024, 4)
    order = TrainingOrder(task=task, settings=TrainingSettings(steps=10, device=device))

    def work(_: int) -> dict[str, Any]:
        trainer = Trainer(order, where(device))
        for _ in range(3):
            trainer.one_step()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            trainer.one_step()
            torch.cuda.synchronize()
        path = Path(tempfile.gettempdir()) / f"shared-gpu-trace-{os.getpid()}.json"
        seen.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
        path.unlink()
        kernels = [e for e in events if e.get("cat") == "kernel"]
        sent = [e for e in kernels if "nccl" in e["name"].lower()]
        rest = [e for e in kernels if "nccl" not in e["name"].lower()]
        return {
            "streams_of_messages": sorted({e["args"].get("stream") for e in sent}),
            "streams_of_arithmetic": sorted({e["args"].get("stream") for e in rest}),
            "message_kernels": len(sent), "message_ms": sum(e["dur"] for e in sent) / 1e3,
            "arithmetic_ms": sum(e["dur"] for e in rest) / 1e3, "together_ms": _together(sent, rest) / 1e3,
        }  # fmt: skip

    keep(ranks=forked(2, work, seats(device)))


def _together(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> float:
    ends = sorted([(e["ts"], 0, 1) for e in some] + [(e["ts"] + e["dur"], 0, -1) for e in some]
                  + [(e["ts"], 1, 1) for e in others] + [(e["ts"] + e["dur"], 1, -1) for e in others])  # fmt: skip
    running, before, found = [0, 0], 0.0, 0.0
    for at, which, change in ends:
        found += at - before if running[0] and running[1] else 0.0
        running[which] += change
        before = at
    return found


class Command:
    """One `shardwise run` in a folder, with the losses that it logged."""

    def __init__(self, device: str, ranks: int, *words: str, steps: int = 12, out: str = "") -> None:
        share = ["--share-gpu", str(ranks)] if device == "cuda" and ranks > 1 else ["--device", device]
        self.log = Path(out) / f"steps-{monotonic()}.jsonl"
        self.words = [
            sys.executable, "-m", "shardwise", "run", TINY, "--on", f"{ranks}xh200",
            *(() if "--seq" in words else JOB), "--warmup", "2", "--steps", str(steps), "--rate", "1e-3",
            "--progress", "none", "--log-file", str(self.log), *share, *words,
        ]  # fmt: skip
        self.code, self.said = -1, ""

    def run(self, meanwhile: Callable[[int], None] | None = None, limit_s: float = 150) -> "Command":
        begun = monotonic()
        with subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
            try:
                if meanwhile is not None:
                    meanwhile(running.pid)
                self.said = running.communicate(timeout=limit_s)[0]
            except subprocess.TimeoutExpired:
                running.kill()
                self.said = running.communicate()[0] + f"\nstill running after {limit_s} s"
        self.code, self.seconds = running.returncode, monotonic() - begun
        return self

    def lines(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in self.log.read_text().splitlines()]
        except (OSError, ValueError):
            return []

    def losses(self) -> dict[int, float]:
        return {int(line["step"]): float(line["loss"]) for line in self.lines()}

    def told(self) -> dict[str, Any]:
        return {"code": self.code, "said": self.said[-1500:], "steps": len(self.losses())}


def ranks_of(pid: int) -> list[int]:
    """Children of the launcher."""
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def at_step(command: Command, step: int, pid: int, limit_s: float = 100) -> list[int]:
    """The ranks, once that step is logged."""
    until = monotonic() + limit_s
    while monotonic() < until and len(command.lines()) < step and Path(f"/proc/{pid}").exists():
        sleep(0.02)
    return [one for one in ranks_of(pid) if "rank" in _words_of(one) or "python" in _words_of(one)]


def _words_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@contextlib.contextmanager
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        yield name


def checkpoints(keep: Keep, device: str) -> None:
    """Saved by four ranks, gone on with by two of another layout and by one."""
    with folder() as out:
        whole = Command(device, 4, "--dp", "2", "--tp", "2", "--zero", "1", out=out).run()
        saved = ["--checkpoints", f"{out}/saved"]
        first = Command(device, 4, "--dp", "2", "--tp", "2", "--zero", "1", *saved, steps=6, out=out).run()
        found = {"whole": whole.told(), "first": first.told()}
        for name, ranks, words in (("same", 4, ("--dp", "2", "--tp", "2", "--zero", "1")), ("tp 2", 2, ("--tp", "2")),
                                   ("one", 1, ())):  # fmt: skip
            copied = f"{out}/saved-{name.replace(' ', '')}"
            subprocess.run(["cp", "-r", f"{out}/saved", copied])
            # a run of other ranks and precision is another run: said so with --force
            more = Command(device, ranks, *words, "--checkpoints", copied, "--force", out=out).run()
            got, wanted = more.losses(), whole.losses()
            gaps = [abs(got[step] / wanted[step] - 1) for step in got if step in wanted]
            found[name] = more.told() | {"gap": max(gaps, default=None), "resumed": sorted(got)[:1]}
            keep(**found)


def kills(keep: Keep, device: str) -> None:
    """SIGKILL to one rank of four: all begin again from a checkpoint, and the losses are the unbroken run's."""
    words = ("--dp", "2", "--tp", "2", "--zero", "1")
    with folder() as out:
        whole = Command(device, 4, *words, steps=24, out=out).run()
        found = {"whole": whole.told()}
        keep(**found)
        for rank in (0, 3):
            broken = Command(device, 4, *words, "--checkpoints", f"{out}/saved-{rank}", "--every", "3",
                             "--max-restarts", "2", steps=24, out=out)  # fmt: skip

            def kill(pid: int, broken: Command = broken, rank: int = rank) -> None:
                team = at_step(broken, 8, pid)
                if len(team) > rank:
                    os.kill(team[rank], signal.SIGKILL)

            broken.run(kill)
            got, wanted = broken.losses(), whole.losses()
            found[f"rank {rank}"] = broken.told() | {
                "bitwise": got == wanted,
                "gap": max((abs(got[s] - wanted[s]) for s in got if s in wanted), default=None),
                "began_again": "start again" in broken.said,
            }  # fmt: skip
            keep(**found)


def timeout(keep: Keep, device: str) -> None:
    """A rank that stands still: NCCL's watchdog ends the others, and `why` reads their flight recorders."""
    with folder() as out:
        stuck = Command(device, 2, "--dp", "2", "--zero", "1", "--records", f"{out}/records", "--timeout", "8",
                        steps=2000, out=out)  # fmt: skip
        stopped: list[int] = []

        def stop(pid: int) -> None:
            team = at_step(stuck, 20, pid)
            if len(team) > 1:
                os.kill(team[1], signal.SIGSTOP)
                stopped.append(team[1])

        begun = time.monotonic()
        stuck.run(stop, limit_s=100)
        there = sorted(p.name for p in Path(f"{out}/records").glob("*")) if Path(f"{out}/records").exists() else []
        why = subprocess.run([sys.executable, "-m", "shardwise", "why", f"{out}/records", "--json"],
                             capture_output=True, text=True)  # fmt: skip
        keep(**stuck.told(), stopped=len(stopped), seconds=time.monotonic() - begun, files=there,
             why=why.stdout[-6000:], why_said=why.stderr[-800:],
             names_rank_1=bool(re.search(r"rank 1\b", why.stdout)))  # fmt: skip


def optimizers(keep: Keep, device: str) -> None:
    """Muon over ranks, and GRPO with ranks that roll out, held against one process and against the CPU."""
    found: dict[str, Any] = {}
    with folder() as out:
        one = Command(device, 1, "--optimizer", "muon", "--precision", "fp32", out=out).run()
        for ranks, words in ((2, ("--dp", "2", "--zero", "1")), (4, ("--dp", "2", "--tp", "2", "--zero", "1"))):
            more = Command(device, ranks, *words, "--optimizer", "muon", "--precision", "fp32", out=out).run()
            got, wanted = more.losses(), one.losses()
            gaps = [abs(got[s] - wanted[s]) for s in wanted if s in got]
            found[f"muon {' '.join(words)}"] = more.told() | {"gap": max(gaps, default=None)}
            keep(**found)
        grpo = ("--seq", "24", "--global-batch", "32", "--algorithm", "grpo")
        apart = ("--dp", "2", "--rollout-ranks", "2", "--engine-tp", "2", "--lag", "1")
        for ranks, words in ((2, ("--dp", "2")), (4, apart)):
            more = Command(device, ranks, *words, *grpo, steps=6, out=out)
            # ranks that roll out are no part of the plan
            more.words[more.words.index("--on") + 1] = "2xh200"
            found[f"grpo {' '.join(words)}"] = more.run().told()
            keep(**found)


def script(keep: Keep, device: str) -> None:
    """A script for torchrun, as it stands."""
    text = (
        "import os, torch, torch.distributed as dist\n"
        f"dist.init_process_group('{'nccl' if device == 'cuda' else 'gloo'}')\n"
        f"x = torch.ones(1000, device='{device}') * dist.get_rank()\n"
        "dist.all_reduce(x); print('sum', int(x[0]), os.environ['LOCAL_RANK']); dist.destroy_process_group()\n"
    )
    with folder() as out:
        Path(f"{out}/train.py").write_text(text)
        words = [sys.executable, "-m", "shardwise", "run", "--share-gpu", "4", "--", f"{out}/train.py"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=90)
        keep(code=done.returncode, sums=done.stdout.count("sum 6 0"), said=done.stderr[-600:])


PARTS: dict[str, Callable[[Keep, str], None]] = {
    "small": small, "axes": axes, "half": half, "timeout": timeout, "prove": prove, "kills": kills,
    "checkpoints": checkpoints, "overlap": overlap, "script": script, "schedules": schedules, "optimizers": optimizers,
    "fabric": fabric,
}  # fmt: skip


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("part", choices=PARTS)
    given.add_argument("file", type=Path)
    given.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = given.parse_args()
    begun, known = monotonic(), dict[str, Any]()

    def keep(**facts: Any) -> None:
        known.update(facts)
        part = args.file.with_suffix(".part")
        part.write_text(json.dumps(known | {"seconds_so_far": monotonic() - begun}, default=str))
        part.replace(args.file)

    keep()
    PARTS[args.part](keep, args.device)
    keep(ended=True)


if __name__ == "__main__":
    main()
