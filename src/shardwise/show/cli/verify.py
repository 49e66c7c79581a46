"""`shardwise verify`: runs a plan and holds its messages, memory and time against the prediction."""

from dataclasses import replace
from math import gcd
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec import structs

from shardwise import catalog
from shardwise.programs.exporters.chrome_trace import write_overlay
from shardwise.programs.exporters.trace_events import trace_file
from shardwise.question import PolicyQuestion
from shardwise.question.studies.build import report_of
from shardwise.report.terminal import policy_text
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._flags import DOES_NOT_FIT, print_origin
from shardwise.show.cli._options import Json, PlanName, within
from shardwise.show.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise.show.cli._plan_of import NO_FLAGS, RunFlags, cannot_run, on_device, plan_of
from shardwise.show.cli._torch import needs_torch
from shardwise.show.cli._verify_device import verify_on_device
from shardwise.spec.policy import Policy
from shardwise.step.simulate import simulate
from shardwise.units import time_text

DIFFERS = 1
MODEL, FABRIC = "llama-3-8b", "dgx-h100"
"""what a world of so many ranks is taken to be where nothing is said"""
NOT_MEASURED = "gathered, working, buffers and overhead are not measured: they are not tensors autograd keeps"


def verify(
    plan: PlanName | None = None,
    /,
    flags: RunFlags = NO_FLAGS,
    *,
    steps: Annotated[int, Parameter(help="Steps to train; the last one is recorded."), within(1)] = 2,
    seed: Annotated[int, Parameter(help="Seed of weights and data order.")] = 0,
    trace: Annotated[
        Path | None, Parameter(help="Measured and predicted step for Perfetto: FILE.json or .json.gz.")
    ] = None,
    even_routing: Annotated[
        bool, Parameter(negative=(), help="Every expert gets as many tokens, as predicted; --fake always does that.")
    ] = False,
    fake: Annotated[
        bool, Parameter(negative=(), help="Ranks of a world of any size in this process; nothing is really sent.")
    ] = False,
    world: Annotated[
        int | None, Parameter(help="Ranks of the world: the size of the cluster --on, or of a dgx-h100."), within(1)
    ] = None,
    rank: Annotated[
        list[int] | None, Parameter(help="With --fake: this rank; several times for more. Default: one of each stage.")
    ] = None,
    device: Annotated[
        str, Parameter(help="cpu (gloo ranks); cuda: time and memory of one GPU, or with --fake of one rank of many.")
    ] = "cpu",
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """Runs the plan on gloo ranks of this machine: messages equal? memory by kind within 2 %?"""
    file = None if trace is None else trace_file(trace, "trace", overwrite)
    if world is not None:
        flags = replace(_example(flags, world) if plan is None else flags, on=_sized(flags.on, world))
    elif plan is None:
        raise ValueError("plan: nothing to run; write a model with --on CLUSTER, a plan file, or --world N --fake")
    found = plan_of(plan or MODEL, flags)
    if cannot_run(plan or MODEL, flags, found, json, "verify"):
        return DOES_NOT_FIT
    if plan is None:
        note = f"no plan was named: {MODEL}, {policy_text(found.policy)}"
        found = replace(found, notes=(*found.notes, note))
    if world is not None and found.policy.gpus != world:
        raise ValueError(f"world: {world} ranks, the policy has {found.policy.gpus}; write --world {found.policy.gpus}")
    if rank and not fake:
        raise ValueError("rank: without --fake every rank runs; leave --rank away")
    needs_torch("verify")
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device: {device!r} is unknown; write cpu or cuda")
    found = on_device(found, flags, device)
    if found.policy.sync:
        raise ValueError(
            f"sync: {found.policy.sync}: its messages are held against its cost by the conformance suite "
            "(benchmarks/sync.py), not by verify; write a plan without --sync"
        )
    from shardwise.run.runtime.train.optimizer import OptimizerSettings
    from shardwise.run.runtime.train.record import timeline_of
    from shardwise.run.runtime.train.task import Task, TrainingOrder, TrainingSettings
    from shardwise.run.runtime.verify import fake_verify
    from shardwise.run.runtime.verify import verify as verified

    task = Task(model=found.case.model, job=found.job, policy=found.policy, stack=found.case.stack, seed=seed,
                even_routing=even_routing)  # fmt: skip
    settings = TrainingSettings(steps=steps, optimizer=OptimizerSettings(name=found.job.optimizer.name))
    order = TrainingOrder(task=task, settings=settings)
    if device == "cuda":
        order = structs.replace(
            order, task=structs.replace(task, drawn_here=True), settings=structs.replace(settings, device="cuda")
        )
        return 0 if verify_on_device(found, order, rank[0] if rank else None, fake, json) else DIFFERS
    result, recordings = fake_verify(order, rank) if fake else verified(order)
    predicted = report_of(found.case, found.policy)
    if file is not None:
        expected = simulate(found.case, found.policy)
        write_overlay({"measured": timeline_of(recordings), "predicted": expected.timeline()}, file)
    if json:
        print_json(_document(found, result, predicted.step_s))
    else:
        _show(found, result, predicted.step_s, len(recordings) if fake else 0)
        if trace is not None:
            print(f"trace: {trace} (open in ui.perfetto.dev)")
    return 0 if result.holds else DIFFERS


def _document(found: PolicyQuestion, result: Any, predicted_s: float) -> dict[str, Any]:
    return {
        "holds": result.holds, "messages_equal": result.messages_equal, "memory_error": result.memory_error,
        "model": found.model.name, "policy": found.policy, "ranks": found.policy.gpus,
        "messages": [structs.asdict(row) | {"equal": row.equal} for row in result.messages],
        "memory": [structs.asdict(row) | {"error": row.error} for row in result.memory],
        "measured_step_s": result.step_s, "predicted_step_s": predicted_s, "predicted_for": found.cluster.name,
        "control_count": result.control_count, "control_bytes": result.control_bytes, "loss": result.loss,
        "policy_origin": found.origin, "notes": [*found.notes, NOT_MEASURED],
    }  # fmt: skip


def _example(flags: RunFlags, world: int) -> RunFlags:
    """A split that is legal for any number of ranks, where nothing was asked for."""
    if flags != NO_FLAGS or world < 1:
        return flags
    tp = gcd(world, 8)
    return replace(flags, tp=tp, seq="1024", global_batch=str(2 * world // tp))


def _sized(on: str, world: int) -> str:
    """The cluster with so many GPUs, where its size is not stated already."""
    return f"{on or FABRIC}:{world}" if on in ("", *catalog.names("fabrics")) else on


def _show(found: PolicyQuestion, result: Any, predicted_s: float, faked: int) -> None:
    policy, notes = found.policy, print_origin(found)
    counts = sum(row.measured_count for row in result.messages)
    sent = sum(row.measured_bytes for row in result.messages)
    print_facts(
        f"{found.model.name}: prediction {'holds' if result.holds else 'does not hold'}",
        [
            ("policy", f"{policy_text(policy)}, schedule {policy.schedule}, {_ranks(policy, faked)}"),
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
            (str(r.stage), r.axis, r.op, r.phase, int(r.measured_count), r.predicted_count, _bytes(r.measured_bytes),
             _bytes(r.predicted_bytes), "=" if r.equal else "!")
            for r in result.messages
        ],
        words=4,
    )  # fmt: skip
    print_gap()
    print_table(
        "memory of one rank", ["stage", "kind", "measured bytes", "predicted", "error"],
        [(str(r.stage), r.kind, int(r.measured_bytes), int(r.predicted_bytes), f"{r.error:+.2%}")
         for r in result.memory],
        words=2, bars=("measured bytes", "predicted"),
    )  # fmt: skip
    extra = f"{result.control_count:,} messages ({result.control_bytes:,} bytes) steer the loop and are not predicted"
    print_notes([*notes, extra, NOT_MEASURED])


def _bytes(size: float) -> int | str:
    """Every digit as long as there is room for them."""
    return int(size) if size < 1e9 else f"{size / 1e9:,.4f}e9"


def _ranks(policy: Policy, faked: int) -> str:
    return f"{faked} of {policy.gpus:,} ranks, nothing really sent" if faked else f"{policy.gpus} gloo ranks"
