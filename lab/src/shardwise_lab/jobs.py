"""Trainings of this project's own runtime on a lab: what they are, from a text such as `tp=2,pp=2` or `sync=diloco`.

A small decoder in fp32, long enough to be seen on a port and short enough for a few megabytes a step. What it sends is
the planner's own list of messages (`work/messages.py`), or of a strategy its own events.
"""

from math import prod

from msgspec import Struct
from msgspec.structs import replace

from shardwise.fields import state_once
from shardwise.registry import closest
from shardwise.spec.arch import model_from_config
from shardwise.spec.job import Job, optimizer_of, precision_of
from shardwise.spec.model import Model
from shardwise.spec.policy import AXES, COPY, Policy
from shardwise.spec.rules import split_refusal
from shardwise.spec.software import Stack, stack_of
from shardwise.step.estimate.synced import choice_of, refusal

STACK = "shardwise"
SYNC = "sync="
SEQ, QUICK_SEQ = 128, 32
WORDS = (*AXES, "zero", "sync")
DENSE = {
    "model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 16,
    "num_key_value_heads": 16, "vocab_size": 256,
}  # fmt: skip
LAYERS = 4
FORM = "write some of dp, tp, pp, cp, ep (tp, or tp=2,pp=2), zero=3, or sync=STRATEGY"


class LabJob(Struct, frozen=True, kw_only=True):
    text: str
    model: Model
    job: Job
    policy: Policy
    stack: Stack


def job_of(text: str, gpus: int) -> LabJob:
    """`tp`: all GPUs in one tensor-parallel group; what degrees leave over is data parallel."""
    degrees, sync = _read(text)
    zero = degrees.pop("zero", 0)
    policy = _policy(text, degrees, zero, sync, gpus)
    model = model_from_config(_config(policy), "lab")
    micros = 2 * policy.pp if policy.pp > 1 else 1
    job = Job(
        seq=SEQ, global_batch=policy.dp * policy.micro_batch * micros, precision=precision_of("fp32"),
        optimizer=optimizer_of("sgd"),
    )  # fmt: skip
    why = split_refusal(model, job, policy)
    choice = choice_of(sync) if sync else None
    if not why and choice is not None:
        why = refusal(choice, model, job, policy)
    if why:
        raise ValueError(f"train: {text[:60]!r} on {gpus} GPUs cannot run: {why}; {FORM}")
    return LabJob(text=text, model=model, job=job, policy=policy, stack=stack_of(STACK))


def quick_job(gpus: int) -> LabJob:
    """Data parallel, with steps of a few kilobytes: for runs of many steps."""
    found = job_of("dp", gpus)
    small = {**_config(found.policy), "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4,
             "num_key_value_heads": 4, "num_hidden_layers": 2}  # fmt: skip
    return replace(found, model=model_from_config(small, "lab"), job=replace(found.job, seq=QUICK_SEQ))


def _read(text: str) -> tuple[dict[str, int], str]:
    """(degrees, 0 where none is said; the strategy): settings of a strategy have commas of their own, so it is last."""
    head, _, sync = text.partition(SYNC)
    found: dict[str, int] = {}
    for word in filter(None, (word.strip() for word in head.split(","))):
        name, equals, value = word.partition("=")
        if name not in WORDS:
            raise ValueError(f"train: {name[:40]!r} is unknown; ddp, fsdp, or {closest(name, list(WORDS))}")
        if (equals and not (value.isascii() and value.isdigit() and len(value) < 4)) or (name == "zero" and not equals):
            raise ValueError(f"train: {word[:40]!r} is not a degree; {FORM}")
        if equals and not int(value) and name != "zero":
            raise ValueError(f"train: {word[:40]!r} is not a degree; {FORM}")
        state_once(found, name, int(value) if equals else 0, "train")
    if not found and not sync:
        raise ValueError(f"train: {text[:60]!r} names nothing; ddp, fsdp, or {FORM}")
    return found, sync.strip()


def _policy(text: str, degrees: dict[str, int], zero: int, sync: str, gpus: int) -> Policy:
    ep = degrees.pop("ep", 1)
    open_ = [axis for axis, degree in degrees.items() if not degree]
    known = prod(degree for degree in degrees.values() if degree)
    if len(open_) > 1 or gpus % known or (not open_ and "dp" in degrees and known != gpus):
        raise ValueError(f"train: {text[:60]!r} does not make {gpus} GPUs; {FORM}")
    for axis in open_ or ["dp"]:
        degrees[axis] = degrees.get(axis, 0) or gpus // known
    dp, tp, pp, cp = (degrees.get(axis, 1) for axis in ("dp", *COPY))
    return Policy(dp=dp, tp=tp, pp=pp, cp=cp, ep=ep or gpus, zero=zero, micro_batch=1, sync=sync)


def _config(policy: Policy) -> dict[str, object]:
    found: dict[str, object] = {**DENSE, "num_hidden_layers": max(LAYERS, policy.pp)}
    if policy.ep > 1:
        found |= {"model_type": "mixtral", "num_local_experts": max(2 * policy.ep, 4), "num_experts_per_tok": 2}
    return found
