"""`shardwise run`: trains with the policy that was planned, on this machine's ranks."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.cli._options import Json
from shardwise.cli._output import print_facts, print_json, print_notes
from shardwise.cli._plan_of import NO_FLAGS, PlanName, RunFlags, needs_torch, plan_of
from shardwise.report.terminal import policy_text
from shardwise.units import time_text


def run(
    plan: PlanName,
    /,
    flags: RunFlags = NO_FLAGS,
    *,
    nproc: Annotated[int | None, Parameter(help="Ranks to start here; default: as many as the policy has.")] = None,
    steps: Annotated[int, Parameter(help="Optimizer steps.")] = 10,
    rate: Annotated[float, Parameter(help="Learning rate.")] = 1e-3,
    warmup: Annotated[int, Parameter(help="Steps over which the rate rises.")] = 0,
    decay: Annotated[str, Parameter(help="constant or cosine.")] = "constant",
    clip: Annotated[float, Parameter(help="Largest gradient norm; 0: none.")] = 1.0,
    seed: Annotated[int, Parameter(help="Of weights and data order.")] = 0,
    capacity: Annotated[float, Parameter(help="Copies an expert takes, over an even share; 0: all.")] = 0.0,
    even_routing: Annotated[bool, Parameter(negative=(), help="Every expert gets as many tokens.")] = False,
    data: Annotated[Path | None, Parameter(help="A text file, read byte by byte; default: a built-in corpus.")] = None,
    log: Annotated[Path | None, Parameter(help="Append one JSON object per step to this file.")] = None,
    checkpoints: Annotated[Path | None, Parameter(help="Folder of checkpoints; a run resumes from the last.")] = None,
    every: Annotated[int, Parameter(help="Steps between checkpoints; 0: only after the last step.")] = 0,
    max_restarts: Annotated[int, Parameter(help="Restarts of all ranks when one dies.")] = 0,
    timeout: Annotated[float, Parameter(help="Seconds a rank waits for the others.")] = 600.0,
    device: Annotated[str, Parameter(help="auto, cpu (gloo) or cuda (NCCL).")] = "auto",
    json: Json = False,
) -> int:
    """Trains with the planned policy: torchrun starts the ranks, log lines go to stderr."""
    found = plan_of(plan, flags)
    needs_torch()
    policy = found.policy
    if nproc is not None and nproc != policy.gpus:
        raise ValueError(f"nproc: {nproc}, but the policy has {policy.gpus} ranks; write --nproc {policy.gpus}")
    for name, value, wrong, cure in (
        ("steps", steps, steps < 1, "a whole number of 1 or more"),
        ("rate", rate, rate <= 0, "a number above 0 such as 1e-3"),
        ("warmup", warmup, warmup < 0, "a whole number of 0 or more"),
        ("decay", decay, decay not in ("constant", "cosine"), "constant or cosine"),
    ):
        if wrong:
            raise ValueError(f"{name}: {value} is out of range; write {cure}")
    from shardwise.runtime.launch import device_for, launch
    from shardwise.runtime.train.optimizer import OptimizerSettings
    from shardwise.runtime.train.task import Order, Settings, Task

    task = Task(
        model=found.model, job=found.job, policy=policy, stack=found.stack, seed=seed, capacity=capacity,
        even_routing=even_routing,
    )  # fmt: skip
    settings = Settings(
        steps=steps, rate=rate, warmup=warmup, decay=decay, every=every, timeout_s=timeout,
        optimizer=OptimizerSettings(name=found.job.optimizer.name, clip=clip),
        data=_text(data), log=_text(log), checkpoints=_text(checkpoints),
        device=device_for(device, policy.gpus),
    )  # fmt: skip
    lines = launch(Order(task=task, settings=settings), max_restarts=max_restarts)
    if os.environ.get("RANK", "0") != "0":
        return 0  # under torchrun every rank comes here; the first one tells
    if json:
        print_json({
            "model": found.model.name, "policy": policy, "ranks": policy.gpus, "device": settings.device,
            "steps": lines, "notes": found.notes,
        })  # fmt: skip
        return 0
    seconds = sorted(line.step_s for line in lines)
    facts: list[tuple[str, str | int | float | None]] = [
        ("policy", f"{policy_text(policy)}, schedule {policy.schedule}, {policy.gpus} ranks on {settings.device}"),
        ("loss", f"{lines[0].loss:.4f} -> {lines[-1].loss:.4f} over {len(lines)} steps" if lines else "nothing to do"),
        ("step", f"median {time_text(seconds[len(seconds) // 2])}" if seconds else "-"),
    ]
    print_facts(f"{found.model.name}: trained", facts)
    print_notes(found.notes)
    return 0


def _text(path: Path | None) -> str:
    return "" if path is None else str(path.resolve())
