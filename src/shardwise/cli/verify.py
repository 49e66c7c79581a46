"""`shardwise verify`: runs a plan and holds its messages, memory and time against the prediction."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec.structs import asdict

from shardwise.cli._flags import Asked
from shardwise.cli._options import Json
from shardwise.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise.cli._plan_of import NO_FLAGS, PlanName, RunFlags, needs_torch, plan_of
from shardwise.exporters.chrome_trace import write_overlay
from shardwise.report import report_of
from shardwise.report.terminal import policy_text
from shardwise.simulate import simulate
from shardwise.spec.policy import Policy
from shardwise.units import time_text

DIFFERS = 1
NOT_MEASURED = "gathered, working, buffers and overhead are not measured: they are not tensors autograd keeps"


def verify(
    plan: PlanName,
    /,
    flags: RunFlags = NO_FLAGS,
    *,
    steps: Annotated[int, Parameter(help="Steps to train; the last one is recorded.")] = 2,
    seed: Annotated[int, Parameter(help="Of weights and data order.")] = 0,
    trace: Annotated[
        Path | None, Parameter(help="Measured and predicted step for Perfetto: FILE.json or .json.gz.")
    ] = None,
    fake: Annotated[
        bool, Parameter(negative=(), help="One rank of each stage in a world of any size; nothing is really sent.")
    ] = False,
    json: Json = False,
) -> int:
    """Runs the plan on gloo ranks of this machine: messages equal? memory by kind within 2 %?"""
    found = plan_of(plan, flags)
    needs_torch()
    if found.policy.sync:
        raise ValueError(
            f"sync: {found.policy.sync}: its messages are held against its cost by the conformance suite "
            "(benchmarks/sync.py), not by verify; write a plan without --sync"
        )
    if steps < 1:
        raise ValueError(f"steps: {steps} is out of range; write a whole number of 1 or more")
    from shardwise.runtime.train.optimizer import OptimizerSettings
    from shardwise.runtime.train.record import timeline_of
    from shardwise.runtime.train.task import Order, Settings, Task
    from shardwise.runtime.verify import fake_verify
    from shardwise.runtime.verify import verify as verified

    task = Task(model=found.model, job=found.job, policy=found.policy, stack=found.stack, seed=seed)
    settings = Settings(steps=steps, optimizer=OptimizerSettings(name=found.job.optimizer.name))
    result, recordings = (fake_verify if fake else verified)(Order(task=task, settings=settings))
    predicted = report_of(found.model, found.cluster, found.job, found.policy, found.stack, profile=found.profile)
    if trace is not None:
        expected = simulate(found.model, found.cluster, found.job, found.policy, found.stack, profile=found.profile)
        write_overlay({"measured": timeline_of(recordings), "predicted": expected.timeline()}, trace)
    if json:
        print_json(_document(found, result, predicted.step_s))
    else:
        _show(found, result, predicted.step_s, fake)
        if trace is not None:
            print(f"trace: {trace} (open in ui.perfetto.dev)")
    return 0 if result.holds else DIFFERS


def _document(found: Asked, result: Any, predicted_s: float) -> dict[str, Any]:
    return {
        "holds": result.holds, "messages_equal": result.messages_equal, "memory_error": result.memory_error,
        "model": found.model.name, "policy": found.policy, "ranks": found.policy.gpus,
        "messages": [asdict(row) | {"equal": row.equal} for row in result.messages],
        "memory": [asdict(row) | {"error": row.error} for row in result.memory],
        "measured_step_s": result.step_s, "predicted_step_s": predicted_s, "predicted_for": found.cluster.name,
        "control_count": result.control_count, "control_bytes": result.control_bytes, "loss": result.loss,
        "notes": [*found.notes, NOT_MEASURED],
    }  # fmt: skip


def _show(found: Asked, result: Any, predicted_s: float, fake: bool) -> None:
    policy = found.policy
    counts = sum(row.measured_count for row in result.messages)
    sent = sum(row.measured_bytes for row in result.messages)
    print_facts(
        f"{found.model.name}: prediction {'holds' if result.holds else 'does not hold'}",
        [
            ("policy", f"{policy_text(policy)}, schedule {policy.schedule}, {_ranks(policy, fake)}"),
            ("messages", f"{counts:,.0f} of {sent:,.0f} bytes: {'equal' if result.messages_equal else 'DIFFERENT'}"),
            ("memory", f"largest error by kind {result.memory_error:.2%} (2 % allowed)"),
            ("step", f"{time_text(result.step_s)} here on the CPU; {time_text(predicted_s)} predicted for "
                     f"{found.cluster.name}"),
        ],
    )  # fmt: skip
    print_gap()
    print_table(
        "messages of one step, all recorded ranks of a stage (! where they differ)",
        ["stage", "axis", "operation", "phase", "count", "predicted", "bytes", "predicted", ""],
        [
            (str(r.stage), r.axis, r.op, r.phase, int(r.measured_count), r.predicted_count, int(r.measured_bytes),
             int(r.predicted_bytes), "=" if r.equal else "!")
            for r in result.messages
        ],
        words=4,
    )  # fmt: skip
    print_gap()
    print_table(
        "memory of one rank", ["stage", "kind", "measured bytes", "predicted", "error"],
        [(str(r.stage), r.kind, int(r.measured_bytes), int(r.predicted_bytes), f"{r.error:+.2%}")
         for r in result.memory],
        words=2,
    )  # fmt: skip
    extra = f"{result.control_count:,} messages ({result.control_bytes:,} bytes) steer the loop and are not predicted"
    print_notes([*found.notes, extra, NOT_MEASURED])


def _ranks(policy: Policy, fake: bool) -> str:
    return f"{policy.pp} of {policy.gpus:,} ranks, nothing really sent" if fake else f"{policy.gpus} gloo ranks"
