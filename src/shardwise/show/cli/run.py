"""`shardwise run`: trains with the policy that was planned, on this machine's ranks."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from shardwise.report.terminal import policy_text
from shardwise.show.cli._as_predicted import as_predicted, expected_head
from shardwise.show.cli._flags import DOES_NOT_FIT, print_origin
from shardwise.show.cli._html import draw
from shardwise.show.cli._options import Json, PlanName, within
from shardwise.show.cli._output import print_facts, print_json, print_line, print_notes
from shardwise.show.cli._plan_of import NO_FLAGS, RunFlags, cannot_run, on_device, plan_of
from shardwise.show.cli._that_fit import warn_of_memory
from shardwise.show.cli._torch import needs_torch
from shardwise.show.cli._torchrun import rank_here
from shardwise.show.cli._training import DEFAULTS, TrainingFlags, settings_of
from shardwise.spec.model import Model

if TYPE_CHECKING:
    from shardwise.run.runtime.train.lines import StepLine


def run(
    plan: PlanName,
    /,
    flags: RunFlags = NO_FLAGS,
    *,
    training: TrainingFlags = DEFAULTS,
    nproc: Annotated[int | None, Parameter(help="Ranks to start here; default: as many as the policy has.")] = None,
    seed: Annotated[int, Parameter(help="Seed of weights and data order."), within(0, 2**63 - 1)] = 0,
    capacity: Annotated[
        float,
        Parameter(help="Copies an expert takes, over an even share; 0: all."),
        within(0, 1e9, cure="0 (all copies) or a factor such as 1.25"),
    ] = 0.0,
    even_routing: Annotated[bool, Parameter(negative=(), help="Every expert gets as many tokens.")] = False,
    max_restarts: Annotated[int, Parameter(help="Restarts of all ranks when one dies."), within(0)] = 0,
    device: Annotated[str, Parameter(help="auto, cpu (gloo) or cuda (NCCL).")] = "auto",
    json: Json = False,
) -> int:
    """Trains with the planned policy on ranks of this machine, or as one of torchrun's; log lines go to stderr."""
    rank = rank_here()
    found = plan_of(plan, flags)
    if cannot_run(plan, flags, found, json, "run"):
        return DOES_NOT_FIT
    needs_torch("run")
    policy = found.policy
    if nproc is not None and nproc != policy.gpus:
        raise ValueError(f"nproc: {nproc}, but the policy has {policy.gpus} ranks; write --nproc {policy.gpus}")
    from shardwise.run.runtime.launch import device_for, launch
    from shardwise.run.runtime.ranks import RanksFailed
    from shardwise.run.runtime.train.task import Task, TrainingOrder

    where = device_for(device, policy.gpus)
    found = on_device(found, flags, where)
    task = Task(
        model=found.case.model, job=found.job, policy=policy, stack=found.case.stack, seed=seed, capacity=capacity,
        even_routing=even_routing,
    )  # fmt: skip
    settings = settings_of(training, found, where)
    if settings.records:
        settings = replace(settings, expected=expected_head(found, where))
    try:
        result = launch(
            TrainingOrder(task=task, settings=settings), max_restarts=max_restarts,
            before=lambda: warn_of_memory(found.case, policy),
        )  # fmt: skip
    except RanksFailed as failure:
        if told := str(failure):
            print(f"error: {told}", file=sys.stderr)
        return failure.code
    lines = result.lines
    if rank:
        return result.code  # under torchrun every rank comes here; the first one tells
    step = as_predicted(found, lines, where)
    unwritten = [result.text()] if result.unwritten else []
    if json:
        print_json({
            "model": found.model.name, "policy": policy, "ranks": policy.gpus, "device": settings.device,
            "precision": found.job.precision.name, "rate": settings.rate, "warmup_steps": settings.warmup,
            "step": step, "steps": [line.fields() for line in lines],
            "exported": result.exported or None,
            "stopped": result.stopped or None, "policy_origin": found.origin, "notes": [*found.notes, *unwritten],
        })  # fmt: skip
        return result.code
    notes = [*print_origin(found), *unwritten]
    facts: list[tuple[str, str | int | float | None]] = [
        (
            "policy",
            f"{policy_text(policy)}, schedule {policy.schedule}, {_ranks(policy.gpus)} on {settings.device} in "
            f"{found.job.precision.name}",
        ),
        ("loss", f"{lines[0].loss:.4f} -> {lines[-1].loss:.4f} over {len(lines)} steps" if lines else "nothing to do"),
        ("rate", f"{settings.rate:.3g}, rising over {settings.warmup} steps" if settings.warmup else settings.rate),
        *_evaluated(lines, _data_words(settings.eval_data or settings.data, found.model)),
    ]
    if result.exported:
        facts.append(("weights", result.exported))
    print_facts(f"{found.model.name}: {'stopped' if result.stopped else 'trained'}", facts)
    if lines:
        draw(lambda: _course_svg(lines))
    print_notes(notes)
    print_line(step.text())
    return result.code


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _course_svg(lines: Sequence["StepLine"]) -> str:
    from shardwise.report.charts import chart_svg
    from shardwise.report.course_figure import course_chart

    held = [(line.step, line.eval_loss) for line in lines if line.eval_loss is not None]
    losses = [("in training", [(line.step, line.loss) for line in lines]), ("held out", held)]
    times = [("step", [(line.step, line.step_s * 1e3) for line in lines])]
    return chart_svg(course_chart("how it went", [("loss", losses), ("step, ms", times)], "step"))


def _evaluated(lines: Sequence["StepLine"], data: str) -> list[tuple[str, str]]:
    found = [line for line in lines if line.eval_loss is not None]
    if not found:
        return []
    last = found[-1]
    quality = f"accuracy {last.accuracy:.1%}" if last.perplexity is None else f"perplexity {last.perplexity:,.3f}"
    return [("held out", f"{quality}, loss {last.eval_loss:.4f} after step {last.step}, of {data}")]


def _data_words(data: Sequence[str], model: Model) -> str:
    if data:
        return "scikit-learn's digits" if data[0] == "digits" else data[0] if len(data) == 1 else f"{len(data)} files"
    return "digits drawn here (no MNIST is shipped)" if model.inputs == "features" else "the built-in text"
