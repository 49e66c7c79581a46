"""The flags of one policy and its job, shared by the verbs that take one policy."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from shardwise.arch import model_of
from shardwise.calibrate.profile import Profile
from shardwise.case import Case, case_of
from shardwise.cli._groups import CLUSTER, JOB, OVERLAP, POLICY
from shardwise.cli._job import (
    Dispatcher,
    GlobalBatch,
    GradDtype,
    Imbalance,
    LossName,
    ModuleNames,
    OffloadShare,
    OptimizerName,
    PipelinePasses,
    Seq,
    UsualPrecision,
    UsualStack,
    job_of,
    modules_of,
    precision_asked,
    software_of,
    usual_micro,
    with_failures,
)
from shardwise.cli._options import Nic, ProfileFile, profile_or_none
from shardwise.cli._output import print_facts, print_json, print_notes
from shardwise.cli._policy import command_of
from shardwise.cli._synced import sync_verdict
from shardwise.cli._tuning import Freeze, Tune, with_tuning
from shardwise.software import Stack
from shardwise.software.limits import broken_by
from shardwise.spec.cards import named_with
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import USUAL_FAILURES, Job
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.pipeline import usual_schedule
from shardwise.spec.policy import ATTENTION, OFFLOAD, ORDERS, OVERLAPS, RECOMPUTE, Policy
from shardwise.spec.rules import verdict_of

DOES_NOT_FIT = 1
OnOff = bool | None
SCHEDULES = (
    "none, gpipe, 1f1b, interleaved, looped_bfs, zero_bubble_h1, interleaved_zero_bubble, zb_v, dualpipe, dualpipe_v, "
    "overlapped"
)
"""written out, since looking for plug-ins takes long; a test holds it against them"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Flags:
    on: Annotated[str, Parameter(group=CLUSTER, help="dgx-h100:1024, 8xh100, 4x8xh100 or a YAML file.")]
    nic: Nic = None
    tp: Annotated[int, Parameter(group=POLICY, help="Tensor parallel.")] = 1
    pp: Annotated[int, Parameter(group=POLICY, help="Pipeline stages.")] = 1
    dp: Annotated[int | None, Parameter(group=POLICY, help="Data parallel; default: what is left of the GPUs.")] = None
    cp: Annotated[int, Parameter(group=POLICY, help="Context parallel.")] = 1
    ep: Annotated[int, Parameter(group=POLICY, help="Expert parallel (inside dp x cp x tp).")] = 1
    vpp: Annotated[int, Parameter(group=POLICY, help="Chunks per stage; above 1: interleaved schedule.")] = 1
    etp: Annotated[
        int, Parameter(group=POLICY, help="Tensor parallel inside an expert; 0: as tp without ep, else 1.")
    ] = 0
    zero: Annotated[int, Parameter(group=POLICY, help="ZeRO stage 0 to 3 (3: FSDP).")] = 1
    sp: Annotated[bool, Parameter(group=POLICY, negative="--no-sp", help="Sequence parallel with tp.")] = True
    micro: Annotated[
        int | None,
        Parameter(
            group=POLICY, help="Sequences per micro-batch; default: 1, of a perceptron all of a rank's examples."
        ),
    ] = None
    recompute: Annotated[str, Parameter(group=POLICY, help=f"{', '.join(RECOMPUTE)}.")] = "none"
    recompute_layers: Annotated[int, Parameter(group=POLICY, help="Layers of each stage that recompute; -1: all.")] = -1
    recompute_modules: ModuleNames = ""
    schedule: Annotated[
        str | None, Parameter(group=POLICY, help=f"{SCHEDULES}; default: 1f1b, with --vpp interleaved.")
    ] = None
    shard_group: Annotated[int, Parameter(group=POLICY, help="Ranks ZeRO shards over (HSDP); 0: all.")] = 0
    offload: Annotated[str, Parameter(group=POLICY, help=f"{', '.join(OFFLOAD)}.")] = "none"
    offload_share: OffloadShare = 1.0
    attention: Annotated[str, Parameter(group=POLICY, help=f"{', '.join(ATTENTION)}.")] = "flash"
    loss: LossName = ""
    order: Annotated[
        str, Parameter(group=POLICY, help=f"Axes on neighbouring ranks, innermost first: {', '.join(ORDERS)}.")
    ] = ORDERS[0]
    overlap_grad: Annotated[
        OnOff,
        Parameter(group=OVERLAP, negative="--no-overlap-grad", help="Gradients are reduced during the backward pass."),
    ] = None
    overlap_param: Annotated[
        OnOff,
        Parameter(
            group=OVERLAP, negative="--no-overlap-param", help="Parameters are gathered during the forward pass."
        ),
    ] = None
    overlap_tp: Annotated[
        OnOff,
        Parameter(group=OVERLAP, negative="--no-overlap-tp", help="Tensor-parallel collectives run under products."),
    ] = None
    overlap_pp: Annotated[
        OnOff, Parameter(group=OVERLAP, negative="--no-overlap-pp", help="Transfers between stages run under compute.")
    ] = None
    imbalance: Imbalance = None
    dispatcher: Dispatcher = None
    seq: Seq = None
    global_batch: GlobalBatch = None
    precision: UsualPrecision = None
    grad_dtype: GradDtype = None
    optimizer: OptimizerName = "adamw"
    stack: UsualStack = None
    tune: Tune = None
    freeze: Freeze = None
    uneven: Annotated[
        bool,
        Parameter(
            group=JOB, negative=(), help="Where the batch does not divide, some replicas take one micro-batch more."
        ),
    ] = False
    pipeline_passes: PipelinePasses = 1
    profile: ProfileFile = None

    @property
    def place(self) -> str:
        """The cluster with the cards stated for it."""
        return named_with(self.on, self.nic)


@dataclass(frozen=True)
class PolicyRequest:
    case: Case
    policy: Policy
    notes: list[str]

    @property
    def model(self) -> Model:
        return self.case.model

    @property
    def cluster(self) -> Cluster:
        return self.case.cluster

    @property
    def job(self) -> Job:
        return self.case.job

    @property
    def stack(self) -> Stack:
        return self.case.stack

    @property
    def profile(self) -> Profile | None:
        return self.case.profile


def asked(model: str, flags: Flags, tokens: str | None = None, failures: str = USUAL_FAILURES) -> PolicyRequest:
    shape, cluster = model_of(model), cluster_of(flags.place)
    stack = software_of(flags.stack, flags.imbalance, shape, flags.dispatcher)
    profile = profile_or_none(flags.profile)
    job, notes = job_of(
        shape, flags.seq, flags.global_batch, precision_asked(flags.precision, shape, stack), flags.optimizer, tokens,
        flags.grad_dtype, gpus=cluster.gpus,
    )  # fmt: skip
    job = replace(job, uneven=flags.uneven, pipeline_passes=flags.pipeline_passes)
    job = with_tuning(job, shape, flags.tune, flags.freeze)
    job = with_failures(job, failures, cluster.gpus)
    for name in ("tp", "pp", "cp"):
        if getattr(flags, name) < 1:
            raise ValueError(f"{name}: {getattr(flags, name)} is out of range; write a whole number of 1 or more")
    rest = max(cluster.gpus // (flags.tp * flags.pp * flags.cp), 1)
    dp = rest if flags.dp is None else flags.dp
    whole = usual_micro(shape, job, dp)
    if whole > 1 and flags.micro is None:
        share = max(job.global_batch // max(dp, 1), 1)
        of = "examples" if shape.inputs == "features" else "pictures"
        notes.append(f"--micro not given: {whole:,}, {'all' if whole == share else f'of {share:,}'} {of} of a rank")
    shares_tokens = flags.sp and flags.tp > 1 and shape.inputs != "features"
    if shares_tokens and shape.sample_tokens and shape.sample_tokens // max(flags.cp, 1) % flags.tp:
        shares_tokens = False
        notes.append(
            f"sp: left out, {shape.sample_tokens:,} tokens of a picture are not shared evenly by tp {flags.tp}"
        )
    if flags.offload_share != 1 and flags.offload == "none":
        raise ValueError(
            f"offload-share: {flags.offload_share:g} of nothing; write --offload optimizer, activations or both"
        )
    stated = {name: value for name in OVERLAPS if (value := getattr(flags, name)) is not None}
    policy = Policy(
        tp=flags.tp, pp=flags.pp, cp=flags.cp, dp=dp, ep=flags.ep, vpp=flags.vpp,
        etp=flags.etp, zero=flags.zero, sp=shares_tokens,
        micro_batch=whole if flags.micro is None else flags.micro,
        recompute=flags.recompute, recompute_layers=flags.recompute_layers,
        recompute_modules=modules_of(flags.recompute_modules), loss=flags.loss, offload_share=flags.offload_share,
        schedule=flags.schedule or usual_schedule(flags.vpp), shard_group=flags.shard_group,
        offload=flags.offload, attention=flags.attention, order=flags.order,
        **stated,
    )  # fmt: skip
    policy = stack.overlapping(policy, stated)
    notes += [
        f"{limit.field}: {stack.name} does not run it so: {limit.why}"
        for limit in broken_by(stack.abilities.limits, policy)
        if limit.field in stated
    ]
    return PolicyRequest(case_of(shape, cluster, job, stack, profile), policy, notes)


def refused(model: str, flags: Flags, ask: PolicyRequest, json: bool, verb: str = "estimate") -> bool:
    """Whether the policy cannot run; then the rule, the numbers and the nearest one that can are printed."""
    verdict = verdict_of(ask.model, ask.cluster, ask.job, ask.policy)
    if verdict.legal:
        verdict = sync_verdict(ask.model, ask.job, ask.policy)
    if verdict.legal:
        return False
    cure = command_of(model, flags.place, ask.job, verdict.cure, ask.stack.name, verb) if verdict.cure else None
    if json:
        print_json({"legal": False, "fits": False, "verdict": f"illegal: {verdict.rule}", "rule": verdict.rule,
                    "why": verdict.why, "cure": cure, "notes": ask.notes})  # fmt: skip
        return True
    print_facts("this policy cannot run", [("rule", verdict.rule), ("because", verdict.why)])
    print_notes(
        [cure] if cure else ["no legal policy is near: other GPUs or another batch are needed"],
        title="nearest that can",
    )
    print_notes(ask.notes)
    return True
