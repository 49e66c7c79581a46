"""Parts of shared_gpu.py that are about time: each predicts first, from what was measured of the same machine a moment
before, then measures."""

import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from msgspec.structs import replace

from shardwise.cost.calibrate.from_collectives import network_fit
from shardwise.cost.calibrate.measure._bench import bench_on
from shardwise.cost.calibrate.measure.collectives import OPS, prepared, slowest_seconds
from shardwise.cost.calibrate.measure.launch import host_point
from shardwise.cost.calibrate.profile import HostMeasurement, Profile, RunCorrection, profile_of
from shardwise.question.studies.build import report_of
from shardwise.run.runtime.device import measured_on_device
from shardwise.run.runtime.share_gpu import SharedGpuSeats
from shardwise.run.runtime.train.fork import forked
from shardwise.run.runtime.train.loop import Trainer
from shardwise.run.runtime.train.task import Task, TrainingOrder, TrainingSettings
from shardwise.spec.arch import model_from_shape
from shardwise.spec.job import Job, precision_of
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.work.case import case_of

Keep = Callable[..., None]
PROFILE = Path(__file__).parents[1] / "profiles" / "h200.toml"
SIZES = tuple(2**power for power in range(12, 29, 4))
WARM, STEPS = 3, 5
SHARED = [
    Policy(dp=2, zero=1), Policy(dp=2, zero=3), Policy(tp=2), Policy(pp=2), Policy(cp=2), Policy(dp=4, zero=1),
    Policy(dp=2, tp=2, zero=1), Policy(dp=2, pp=2, zero=1),
]  # fmt: skip


def wide(layers: int, hidden: int = 1024, ffn: int = 2816, seq: int = 512) -> Model:
    made = model_from_shape(
        f"llama of {layers} layers, {hidden} wide", layers=layers, hidden=hidden, heads=hidden // 64,
        kv_heads=hidden // 64, ffn=ffn, glu=True, vocab=32000, tied=False, positions=seq,
    )  # fmt: skip
    return replace(made, dropout=False)


def task_for(model: Model, policy: Policy, seq: int, batch: int) -> Task:
    precision = precision_of("fsdp-mixed-reduce32" if policy.zero == 3 and policy.dp > 1 else "bf16")
    policy = replace(policy, sp=policy.tp > 1)
    job = Job(seq=seq, global_batch=batch, precision=precision)
    return Task(model=model, job=job, policy=policy, stack=stack_of("shardwise"), drawn_here=True)


def predicted(task: Task, on: str, profile: Profile) -> tuple[float, dict[str, float]]:
    report = report_of(case_of(task.model, cluster_of(on), task.job, task.stack, profile), task.policy)
    return report.step_s, {name: seconds for name, seconds in report.time_s.items() if seconds}


def small(keep: Keep, device: str) -> None:
    """Steps so small that the host sets the pace: the first, those that warm up, and all after them."""
    bench = bench_on(f"{device}:0" if device == "cuda" else device, quick=True)
    per_op = float(host_point(bench)["seconds"])
    profile = replace(profile_of(PROFILE), host=HostMeasurement(seconds_per_op=per_op))
    rows = []
    for layers in (8, 4, 16):
        task = task_for(wide(layers), Policy(zero=0, sp=False, micro_batch=2), 512, 2)
        step_s, parts = predicted(task, "1xh200", profile)
        row: dict[str, Any] = {"layers": layers, "predicted_ms": 1e3 * step_s, "parts_s": parts}
        keep(host_s_per_op=per_op, rows=[*rows, row])
        order = TrainingOrder(task=task, settings=TrainingSettings(steps=10**6, device=device, rate=1e-5))
        trainer = Trainer(order, torch.device(device))
        seconds = [_timed(trainer, device) for _ in range(30)]
        del trainer
        step = statistics.median(seconds[WARM:])
        row |= {
            "measured_ms": 1e3 * step, "first_s": seconds[0],
            "warm_up_s": sum(max(each - step, 0.0) for each in seconds[:WARM]), "error": step_s / step - 1,
            "spread": [1e3 * min(seconds[WARM:]), 1e3 * max(seconds[WARM:])],
        }  # fmt: skip
        if device == "cuda":
            found = measured_on_device(order, 3)
            row |= {"kernels_ms": 1e3 * found.kernels_s, "host_again": float(host_point(bench)["seconds"])}
        rows.append(row)
        print(row, flush=True)
        keep(rows=rows)


def _timed(trainer: Trainer, device: str) -> float:
    begun = perf_counter()
    trainer.one_step()
    if device == "cuda":
        torch.cuda.synchronize()
    trainer.engine.world.comm.events.clear()
    trainer.engine.pipeline.done.clear()
    return perf_counter() - begun


def fabric(keep: Keep, device: str) -> None:
    """Steps of ranks that share the GPU, whose fabric is the socket between them as its own collectives found it."""
    model, seq, batch = wide(4, 2048, 5632, 2048), 2048, 16
    if device == "cpu":
        model, seq, batch = wide(2, 64, 192, 64), 64, 4
    seats = SharedGpuSeats() if device == "cuda" else None
    profiles: dict[int, Profile] = {}
    fits: dict[str, Any] = {}
    for ranks in (2, 4):
        points = forked(ranks, lambda _, n=ranks: _points(n, device), seats)[0]
        fit = network_fit(points, cluster_of(_nodes(ranks)))
        fits[str(ranks)] = {"factors": {k: [f.latency, f.bandwidth] for k, f in fit.factors.items()},
                            "points": points}  # fmt: skip
        profiles[ranks] = replace(
            profile_of(PROFILE), network=fit, run=RunCorrection(kernel_factor=max(1.0 / ranks, 0.05))
        )
        keep(fits=fits)
    rows: list[dict[str, Any]] = []
    for policy in SHARED:
        task = task_for(model, policy, seq, batch)
        step_s, parts = predicted(task, _nodes(policy.gpus), profiles[policy.gpus])
        degrees = [n for n in ("dp", "tp", "pp", "cp") if getattr(policy, n) > 1]
        name = " ".join(f"{n} {getattr(policy, n)}" for n in [*degrees, *(["zero"] if policy.dp > 1 else [])])
        row: dict[str, Any] = {"name": name, "predicted_s": step_s, "parts_s": parts}
        rows.append(row)
        keep(rows=rows)
        try:
            row |= _measured(task, device, seats)
            row["error"] = step_s / row["measured_s"] - 1
        except Exception as failure:
            row["failed"] = (str(failure).strip().splitlines() or [""])[-1][:300]
        print({k: v for k, v in row.items() if k != "parts_s"}, flush=True)
        keep(rows=rows)


def _nodes(ranks: int) -> str:
    return f"{ranks}x1xh200@25Gbps/node"


def _points(ranks: int, device: str) -> list[dict[str, Any]]:
    bench = bench_on("cuda:0" if device == "cuda" else "cpu", quick=True)
    found = []
    for op in OPS:
        for size in SIZES if device == "cuda" else SIZES[:3]:
            call = prepared(bench, op, size, ranks)
            if call is not None:
                seconds = slowest_seconds(bench, call, rounds_of=3)
                found.append({"op": op, "bytes": size, "ranks": ranks, "nodes": ranks, "seconds": seconds})
                if seconds > 0.5:
                    break
    return found


def _measured(task: Task, device: str, seats: SharedGpuSeats | None) -> dict[str, Any]:
    order = TrainingOrder(task=task, settings=TrainingSettings(steps=10**6, device=device, rate=1e-5))

    def work(_: int) -> list[float]:
        trainer = Trainer(order, torch.device(device))
        return [_timed(trainer, device) for _ in range(WARM + STEPS)]

    ranks = forked(task.policy.gpus, work, seats)
    steps = [max(each) for each in zip(*ranks, strict=True)][WARM:]
    first = max(each[0] for each in ranks)
    return {"measured_s": statistics.median(steps), "spread": [min(steps), max(steps)], "first_s": first}
