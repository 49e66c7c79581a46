"""What `run` and `verify` execute: a plan written by `plan --json` or `estimate --json`, or a model with flags."""

from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec.structs import replace

from shardwise.arch import model_of
from shardwise.bounded import json_of
from shardwise.case import case_of
from shardwise.cli._flags import Flags, PolicyRequest, asked, refused
from shardwise.cli._groups import CLUSTER
from shardwise.cli._options import profile_or_none
from shardwise.cli._synced import SyncName, with_sync
from shardwise.cli._tuning import refuse_tuning
from shardwise.fields import Fields, converted, read_file
from shardwise.registry import closest
from shardwise.software import stack_of
from shardwise.spec.cards import named_with
from shardwise.spec.job import Job, optimizer_of, precision_of, usual_precision
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy

STACK = "shardwise"
MOST_BYTES = 64 * 2**20
"""of a plan; one of a thousand policies has 4"""
VARIANTS = {
    "context_parallel": ("ring", "ulysses", "gather"), "embedding": ("vocab", "broadcast"),
    "attention_split": ("heads", "gather-qk"),
}  # fmt: skip
"""how the runtime cuts embedding and attention: settings of the stack, not of a policy"""
PlanName = Annotated[
    str, Parameter(help="JSON of `plan` or `estimate`; or a model (catalog name, config.json) with policy flags.")
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunFlags(Flags):
    """A plan's flags; what is run is predicted with the runtime's own stack."""

    on: Annotated[
        str, Parameter(group=CLUSTER, help="The cluster planned for: 4xh100; a plan file states its own.")
    ] = ""
    precision: Annotated[
        str | None,
        Parameter(
            help="fp32, bf16, bf16-pure; with --zero 3 fsdp-mixed-reduce32, fsdp-mixed. Default: on CUDA the planned "
            "one, on the CPU fp32."
        ),
    ] = None
    model: Annotated[str | None, Parameter(help="The model of a plan file made for a config.json.")] = None
    context_parallel: Annotated[
        str, Parameter(help="Attention over context-parallel ranks: ring, ulysses, gather.")
    ] = "ring"
    embedding: Annotated[str, Parameter(help="vocab: cut by tp; broadcast: the first tp rank has it whole.")] = "vocab"
    attention_split: Annotated[
        str, Parameter(help="heads; gather-qk: queries and keys gathered over tp, values local.")
    ] = "heads"
    choice: Annotated[
        int | None, Parameter(help="Which of a `plan --json` file's list, from 1; not given: the recommended one.")
    ] = None
    sync: SyncName = None


NO_FLAGS = RunFlags()


def plan_of(name: str, flags: RunFlags) -> PolicyRequest:
    """With the stack that describes the runtime, in the precision asked for or planned; bad input is a ValueError."""
    if flags.uneven:
        raise ValueError("uneven: run deals every batch out evenly; write a --global-batch that divides")
    document = document_of(name)
    planned = document.get("tuning") if document is not None else None
    refuse_tuning("run", "trains all parameters and has no adapters", flags.tune, flags.freeze, planned)
    if document is not None:
        found = _from_document(name, document, flags)
    else:
        if not flags.on:
            raise ValueError(f"on: {name!r} is no plan file, so the cluster is needed; write --on 4xh100")
        found = asked(name, dataclass_replace(flags, stack=STACK))
    if found.job.pipeline_passes > 1:
        raise ValueError("pipeline-passes: run sends the whole batch through the pipeline at once; leave it out")
    return _as_run(dataclass_replace(found, policy=with_sync(found.policy, flags.sync)), flags)


def cannot_run(name: str, flags: RunFlags, found: PolicyRequest, json: bool, verb: str) -> bool:
    """Whether the policy is illegal; then the rule, the numbers and the nearest legal one are printed."""
    planned = document_of(name) is not None
    model = flags.model or found.model.name if planned else name
    return refused(model, dataclass_replace(flags, on=flags.on or found.cluster.name), found, json, verb)


def on_device(found: PolicyRequest, flags: RunFlags, device: str) -> PolicyRequest:
    """In the precision that is run there: the one asked for, or on CUDA the planned one as far as it can be run."""
    planned = found.job.precision.name
    name, why = flags.precision or planned, ""
    if flags.precision is None and device == "cpu":
        name, why = "fp32", "the CPU's default; --precision says another"
    elif flags.precision is None:
        name, why = _runnable(planned, found.policy)
    if name == planned:
        return found
    notes = [*found.notes, f"planned for {planned}, run in {name}: {why}"]
    job = replace(found.job, precision=precision_of(name))
    return PolicyRequest(case_of(found.model, found.cluster, job, found.stack, found.profile), found.policy, notes)


def _runnable(planned: str, policy: Policy) -> tuple[str, str]:
    """The nearest precision that the runtime has for the policy, and why it is another one."""
    if planned.startswith(("fp32", "fsdp")):
        return planned, ""
    if policy.offload != "none":
        return "fp32", "an offloaded optimizer runs in it alone"
    if policy.zero == 3 and policy.dp * policy.cp > 1:
        return "fsdp-mixed-reduce32", "what FSDP has of it"
    return ("bf16-pure" if planned == "bf16-pure" else "bf16"), "this runtime has no narrower one"


def _as_run(found: PolicyRequest, flags: RunFlags) -> PolicyRequest:
    model, notes = found.model, list(found.notes)
    chosen = {name: getattr(flags, name) for name in VARIANTS}
    for name, value in chosen.items():
        if value not in VARIANTS[name]:
            raise ValueError(f"{name.replace('_', '-')}: {value!r} is unknown; {closest(value, list(VARIANTS[name]))}")
    if model.dropout:
        model = replace(model, dropout=False)
        notes.append("dropout is off: runs of different layouts could not be compared")
    case = case_of(model, found.cluster, found.job, stack_of(STACK).changed(**chosen), found.profile)
    return PolicyRequest(case, found.policy, notes)


def document_of(name: str) -> dict[str, Any] | None:
    """The file's content when it is a plan; None for a model."""
    path = Path(name)
    if path.suffix != ".json" or not path.is_file():
        return None
    raw = read_file(path, "plan", MOST_BYTES, "what `shardwise estimate --json` prints")
    try:
        found = json_of(raw)
    except ValueError as error:
        raise ValueError(
            f"plan: {name!r} is no JSON ({error}); write what `shardwise estimate --json` prints"
        ) from None
    return found if isinstance(found, dict) and ("policy" in found or "best" in found) else None


def chosen_of(name: str, document: dict[str, Any], choice: int | None) -> dict[str, Any]:
    recommended, choices = document.get("recommended"), document["best"]
    if choice is None and isinstance(recommended, dict):
        return recommended
    number, count = choice or 1, len(choices) if isinstance(choices, list) else 0
    found = choices[number - 1] if 1 <= number <= count else None
    if not count:
        raise ValueError(f"plan: {name!r} lists no policy; write what `shardwise plan --json` prints where one fits")
    if not isinstance(found, dict):
        raise ValueError(f"choice: {number} of the plans in {name!r}; write 1 to {count}")
    return found


def _from_document(name: str, document: dict[str, Any], flags: RunFlags) -> PolicyRequest:
    stated = document
    if "best" in document:
        stated = {**document, **chosen_of(name, document, flags.choice)}
    fields, wanted = Fields(stated, f"plan {name!r}"), "what `estimate --json` prints"
    policy = converted(fields.value("policy", wanted), Policy, fields.at("policy"), wanted)
    optimizer = optimizer_of(fields.text("optimizer", default=flags.optimizer))
    model, cluster = (
        planned_model(flags.model or fields.text("model")),
        cluster_of(named_with(flags.on or fields.text("cluster"), flags.nic)),
    )
    planned = fields.text("precision", default="") or usual_precision(model)
    job = Job(
        seq=fields.whole("seq_tokens"), global_batch=fields.whole("global_sequences"),
        pipeline_passes=fields.whole("pipeline_passes", default=1),
        precision=precision_of(flags.precision or planned), optimizer=optimizer,
    )  # fmt: skip
    notes = [f"planned for {planned}, run in {job.precision.name}"] if planned != job.precision.name else []
    profile = profile_or_none(flags.profile)
    return PolicyRequest(case_of(model, cluster, job, stack_of(STACK), profile), policy, notes)


def planned_model(name: str) -> Model:
    try:
        return model_of(name)
    except ValueError as error:
        raise ValueError(
            f"{error}; a plan names its model only: write --model with the path of its config.json"
        ) from None
