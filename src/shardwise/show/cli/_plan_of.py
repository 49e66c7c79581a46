"""The questions of verbs that take a plan file, written by `plan` or `estimate --json`, or a model with flags."""

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace as with_fields

from shardwise.question import PolicyQuestion
from shardwise.question.files import document_of, question_of_plan
from shardwise.question.job import CUTS
from shardwise.show.cli._flags import Flags, asked, on_of, refused
from shardwise.show.cli._groups import CLUSTER
from shardwise.show.cli._options import flags, of_table, option
from shardwise.spec.job import precision_of
from shardwise.spec.parameters import ON
from shardwise.spec.policy import Policy

STACK = "shardwise"


@flags
class PlanFlags(Flags):
    """A policy's flags, or a plan file and which of its choices."""

    on: Annotated[
        str, option(ON, help="dgx-h100:1024, 8xh100, 4x8xh100 or a YAML file; a plan file states its own.")
    ] = ""
    model: Annotated[str | None, Parameter(group=CLUSTER, help="The model of a plan file made for a config.json.")] = (
        None
    )
    choice: Annotated[
        int | None, Parameter(help="Which of a `plan --json` file's list, from 1; not given: the recommended one.")
    ] = None


@flags
class RunFlags(PlanFlags):
    """A plan's flags; what is run is predicted with the runtime's own stack."""

    precision: Annotated[str | None, of_table("precision", help=(
        "fp32, bf16, bf16-pure; with --zero 3 fsdp-mixed-reduce32, fsdp-mixed. Default: on CUDA the planned one, on "
        "the CPU fp32."
    ))] = None  # fmt: skip


NO_FLAGS, NO_PLAN_FLAGS = RunFlags(), PlanFlags()


def question_of_words(name: str, given: PlanFlags) -> tuple[PolicyQuestion, tuple[int, ...]]:
    """Of a plan file or a model, and the layers of each stage where a file has them."""
    document = document_of(name)
    if document is not None:
        return question_of_plan(name, document, given, model=given.model, on=given.on, choice=given.choice)
    if not given.on:
        raise ValueError(f"on: {name!r} is not a plan file, so the cluster is needed; write --on 8xh100")
    return asked(name, given), ()


def cannot_run(name: str, given: PlanFlags, found: PolicyQuestion, json: bool, verb: str) -> bool:
    """Whether the policy is illegal; then the rule, the numbers and the nearest legal one are printed."""
    return refused(called(name, given, found), on_of(given, given.on or found.cluster.name), found, json, verb)


def called(name: str, given: PlanFlags, found: PolicyQuestion) -> str:
    """The model as a command line names it."""
    return given.model or (name if document_of(name) is None else found.model.name)


def plan_of(name: str, given: RunFlags) -> PolicyQuestion:
    """With the stack that describes the runtime, in the precision asked for or planned; bad input is a ValueError."""
    if given.uneven:
        raise ValueError("uneven: run deals every batch out evenly; write a --global-batch that divides")
    for each in ("lengths", "packing"):
        if getattr(given, each):
            raise ValueError(f"{each}: run trains on sequences that are all as long as --seq; leave --{each} out")
    found, _ = question_of_words(name, replace(given, stack=STACK))
    if found.job.uneven or found.job.pipeline_passes > 1:
        field = "uneven" if found.job.uneven else "pipeline-passes"
        raise ValueError(f"{field}: run sends one even batch through the pipeline at once; leave it out")
    return _as_run(found, given)


def on_device(found: PolicyQuestion, given: RunFlags, device: str) -> PolicyQuestion:
    """In the precision that is run there: the one asked for, or on CUDA the planned one as far as it can be run."""
    planned = found.job.precision.name
    name, why = given.precision or planned, ""
    if given.precision is None and device == "cpu":
        name, why = "fp32", "the CPU's default; --precision says another"
    elif given.precision is None:
        name, why = _runnable(planned, found.policy)
    if name == planned:
        return found
    notes = (*found.notes, f"planned for {planned}, run in {name}: {why}")
    return replace(found, job=with_fields(found.job, precision=precision_of(name)), notes=notes)


def _runnable(planned: str, policy: Policy) -> tuple[str, str]:
    """The nearest precision that the runtime has for the policy, and why it is another one."""
    if planned.startswith(("fp32", "fsdp")):
        return planned, ""
    if policy.offload != "none":
        return "fp32", "an offloaded optimizer runs in it alone"
    if policy.zero == 3 and policy.dp * policy.cp > 1:
        return "fsdp-mixed-reduce32", "what FSDP has of it"
    return ("bf16-pure" if planned == "bf16-pure" else "bf16"), "this runtime has no narrower one"


def _as_run(found: PolicyQuestion, given: RunFlags) -> PolicyQuestion:
    model, notes = found.model, list(found.notes)
    chosen = {name: value for name in CUTS if (value := getattr(given, name)) is not None}
    if model.dropout:
        model = with_fields(model, dropout=False)
        notes.append("dropout is off: runs of different layouts could not be compared")
    stack = found.stack.changed(**chosen) if chosen else found.stack
    return replace(found, model=model, stack=stack, notes=tuple(notes))
