"""`shardwise estimate`: one policy - memory, time, utilization, traffic, cost, and whether it can run at all."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.arch import model_of
from shardwise.cli._job import (
    DEFAULT_STACK,
    GlobalBatch,
    OptimizerName,
    PrecisionName,
    Seq,
    StackName,
    Tokens,
    job_of,
)
from shardwise.cli._options import Json, ProfileFile, profile_or_none
from shardwise.cli._output import print_facts, print_json, print_notes
from shardwise.cli._policy import command_of
from shardwise.report import report_of
from shardwise.report.terminal import show
from shardwise.spec.cluster import Cluster
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.rules import Verdict, verdict_of
from shardwise.spec.stack import Stack, known_stack

DOES_NOT_FIT = 1
OnOff = bool | None


def estimate(
    model: Annotated[str, Parameter(help="A catalog name, or a path to a Hugging Face config.json.")],
    /,
    *,
    on: Annotated[str, Parameter(help="dgx-h100:1024, 8xh100, 4x8xh100 or a YAML file.")],
    tp: Annotated[int, Parameter(help="Tensor parallel.")] = 1,
    pp: Annotated[int, Parameter(help="Pipeline stages.")] = 1,
    dp: Annotated[int | None, Parameter(help="Data parallel; default: what is left of the GPUs.")] = None,
    cp: Annotated[int, Parameter(help="Context parallel.")] = 1,
    ep: Annotated[int, Parameter(help="Expert parallel (inside dp x cp x tp).")] = 1,
    vpp: Annotated[int, Parameter(help="Chunks per stage; above 1: interleaved schedule.")] = 1,
    etp: Annotated[int, Parameter(help="Tensor parallel inside an expert; 0: as tp without ep, else 1.")] = 0,
    zero: Annotated[int, Parameter(help="ZeRO stage 0 to 3 (3: FSDP).")] = 1,
    sp: Annotated[bool, Parameter(negative="--no-sp", help="Sequence parallel with tp.")] = True,
    micro: Annotated[int, Parameter(help="Sequences per micro-batch.")] = 1,
    recompute: Annotated[str, Parameter(help="none, selective or full.")] = "none",
    recompute_layers: Annotated[int, Parameter(help="Layers of each stage that recompute; -1: all.")] = -1,
    schedule: Annotated[str | None, Parameter(help="1f1b, interleaved or gpipe.")] = None,
    shard_group: Annotated[int, Parameter(help="Ranks ZeRO shards over (HSDP); 0: all.")] = 0,
    offload: Annotated[str, Parameter(help="none, optimizer, activations or both.")] = "none",
    attention: Annotated[str, Parameter(help="flash or plain.")] = "flash",
    overlap_grad: Annotated[OnOff, Parameter(negative="--no-overlap-grad", help="Default: the stack's.")] = None,
    overlap_param: Annotated[OnOff, Parameter(negative="--no-overlap-param", help="Default: the stack's.")] = None,
    overlap_tp: Annotated[OnOff, Parameter(negative="--no-overlap-tp", help="Default: the stack's.")] = None,
    overlap_pp: Annotated[OnOff, Parameter(negative="--no-overlap-pp", help="Default: the stack's.")] = None,
    seq: Seq = None,
    global_batch: GlobalBatch = None,
    precision: PrecisionName = "bf16",
    optimizer: OptimizerName = "adamw",
    tokens: Tokens = None,
    stack: StackName = DEFAULT_STACK,
    profile: ProfileFile = None,
    json: Json = False,
) -> int:
    """One policy: memory by kind and stage, step time by part, MFU, traffic, cost, verdict."""
    shape, cluster, software = model_of(model), cluster_of(on), known_stack(stack)
    measured = profile_or_none(profile)
    job, notes = job_of(shape, seq, global_batch, precision, optimizer, tokens)
    stated = {"grad": overlap_grad, "param": overlap_param, "tp": overlap_tp, "pp": overlap_pp}
    policy = Policy(
        tp=tp, pp=pp, cp=cp, dp=dp if dp is not None else _rest(cluster, tp, pp, cp), ep=ep, vpp=vpp, etp=etp,
        zero=zero, sp=sp and tp > 1, micro_batch=micro, recompute=recompute, recompute_layers=recompute_layers,
        schedule=schedule or ("interleaved" if vpp > 1 else "1f1b"), shard_group=shard_group, offload=offload,
        attention=attention, **_overlap(software, stated),
    )  # fmt: skip
    verdict = verdict_of(shape, cluster, job, policy)
    if not verdict.legal:
        cure = command_of(model, on, job, verdict.cure, stack) if verdict.cure else None
        _refuse(verdict, cure, notes, json)
        return DOES_NOT_FIT
    report = report_of(shape, cluster, job, policy, software, profile=measured)
    if json:
        print_json({"legal": True} | report.to_dict() | {"notes": notes})
    else:
        show(report)
        print_notes(notes)
    return 0 if report.fits else DOES_NOT_FIT


def _rest(cluster: Cluster, tp: int, pp: int, cp: int) -> int:
    """Data-parallel ranks; where the GPUs do not divide, the rule about the world says so."""
    for name, value in (("tp", tp), ("pp", pp), ("cp", cp)):
        if value < 1:
            raise ValueError(f"{name}: {value} is out of range; write a whole number of 1 or more")
    return max(cluster.gpus // (tp * pp * cp), 1)


def _overlap(stack: Stack, stated: dict[str, bool | None]) -> dict[str, bool]:
    fields = {f"overlap_{name}": value for name, value in stated.items()}
    return {field: getattr(stack, field) if value is None else value for field, value in fields.items()}


def _refuse(verdict: Verdict, cure: str | None, notes: list[str], json: bool) -> None:
    if json:
        print_json({"legal": False, "fits": False, "verdict": f"illegal: {verdict.rule}", "rule": verdict.rule,
                    "why": verdict.why, "cure": cure, "notes": notes})  # fmt: skip
        return
    print_facts("this policy cannot run", [("rule", verdict.rule), ("because", verdict.why)])
    print_notes(
        [cure] if cure else ["no legal policy is near: other GPUs or another batch are needed"],
        title="nearest that can",
    )
    print_notes(notes)
