"""`shardwise verify`: runs a plan and holds its messages, memory and time against the prediction."""

from dataclasses import replace
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from msgspec import structs

from shardwise import catalog
from shardwise.answers.verify import DeviceAnswer, device_answer, verify_answer
from shardwise.programs.exporters.chrome_trace import write_overlay
from shardwise.programs.exporters.trace_events import trace_file
from shardwise.question import PolicyQuestion
from shardwise.question.studies.build import report_of
from shardwise.report.terminal import policy_text
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._flags import DOES_NOT_FIT
from shardwise.show.cli._options import Json, PlanName, within
from shardwise.show.cli._output import answered
from shardwise.show.cli._plan_of import NO_FLAGS, RunFlags, cannot_run, on_device, plan_of
from shardwise.show.cli._share_gpu import ShareGpu, sharing
from shardwise.show.cli._torch import needs_torch
from shardwise.step.estimate.own_work import own_work
from shardwise.step.simulate import simulate

if TYPE_CHECKING:
    from shardwise.run.runtime.train.task import TrainingOrder

DEVICE_STEPS = 5
MODEL, FABRIC = "llama-3-8b", "dgx-h100"
"""what a world of so many ranks is taken to be where nothing is said"""


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
    share_gpu: ShareGpu = 0,
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
    if share_gpu and fake:
        raise ValueError("fake: nothing is sent, and --share-gpu sends over NCCL; leave one of the two away")
    shared = sharing(share_gpu, found.policy.gpus, "cuda") if share_gpu else ""
    found = on_device(found, flags, shared or device)
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
    if shared:
        order = structs.replace(order, settings=structs.replace(settings, device=shared))
    elif device == "cuda":
        order = structs.replace(
            order, task=structs.replace(task, drawn_here=True), settings=structs.replace(settings, device="cuda")
        )
        return answered(_on_device(found, order, rank[0] if rank else None, fake), json)
    result, recordings = fake_verify(order, rank) if fake else verified(order)
    if file is not None:
        expected = simulate(found.case, found.policy)
        write_overlay({"measured": timeline_of(recordings), "predicted": expected.timeline()}, file)
    predicted_s = report_of(found.case, found.policy).step_s
    answer = verify_answer(found, result, predicted_s, faked=len(recordings) if fake else 0)
    return answered(answer, json, wrote={"trace": f"{trace} (open in ui.perfetto.dev)"} if trace else {})


def _on_device(found: PolicyQuestion, order: "TrainingOrder", rank: int | None, fake: bool) -> DeviceAnswer:
    from shardwise.run.runtime.device import measured_on_device, needs_gpu

    needs_gpu(found.policy, fake)
    where = (own_work(found.case, found.policy).rank if rank is None else rank) if fake else None
    measured = measured_on_device(order, DEVICE_STEPS, rank=where)
    return device_answer(
        found, measured.device, where or 0, fake=fake, step_s=measured.step_s, kernels_s=measured.kernels_s,
        spread=measured.spread, peak_bytes=measured.peak_bytes,
    )  # fmt: skip


def _example(flags: RunFlags, world: int) -> RunFlags:
    """A split that is legal for any number of ranks, where nothing was asked for."""
    if flags != NO_FLAGS or world < 1:
        return flags
    tp = gcd(world, 8)
    return replace(flags, tp=tp, seq="1024", global_batch=str(2 * world // tp))


def _sized(on: str, world: int) -> str:
    """The cluster with so many GPUs, where its size is not stated already."""
    return f"{on or FABRIC}:{world}" if on in ("", *catalog.names("fabrics")) else on
