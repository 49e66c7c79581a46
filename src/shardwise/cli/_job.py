"""The job, as the flags of several verbs state it: sequence, batch, precision, optimizer, tokens."""

import re
from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from shardwise.arch.tensors import active_parameters
from shardwise.cli._groups import JOB, POLICY
from shardwise.cli._tuning import tuning_words
from shardwise.estimate.chinchilla import TOKENS_PER_PARAMETER
from shardwise.optimizers import USUAL, optimizer_names
from shardwise.software import Stack, known_stack, stack_for
from shardwise.software.dispatcher import with_dispatcher
from shardwise.spec.job import (
    MOST_ASSUMED,
    NO_FAILURES,
    PRECISIONS,
    USUAL_FAILURES,
    Job,
    Precision,
    check_sequence,
    optimizer_of,
    usual_precision,
    usual_sequence,
    with_grad_dtype,
)
from shardwise.spec.model import Model
from shardwise.units import count_of, in_full, sequence_tokens

Seq = Annotated[
    str | None,
    Parameter(
        group=JOB, help="Sequence length, 4096 or 32k (32,768); default: the model's own positions, at most 8192."
    ),
]
GlobalBatch = Annotated[
    str | None,
    Parameter(
        group=JOB,
        help="Sequences per step, or '4M tokens'; default: 64k tokens (2**16) per GPU, at most 4M (16M beyond 4,096 "
        "GPUs).",
    ),
]
PipelinePasses = Annotated[
    int,
    Parameter(
        group=JOB,
        help="Times a step fills and drains its pipeline, each with an equal part of the batch (a local batch of "
        "torchtitan or NeMo Automodel); 1: the whole batch at once.",
    ),
]
PrecisionName = Annotated[str, Parameter(name="--precision", help="bf16, fp16, fp8, bf16-pure, autocast, ...")]
OptimizerName = Annotated[str, Parameter(name="--optimizer", group=JOB, help=f"{', '.join(optimizer_names())}.")]
StackName = Annotated[str, Parameter(name="--stack", group=JOB, help="Software whose kernels and overlap are assumed.")]
UsualPrecision = Annotated[
    str | None,
    Parameter(
        name="--precision",
        group=JOB,
        help="bf16, fp16, fp8, fp8-rowwise, fp8-blockwise, mxfp8, nvfp4: as --stack keeps and sends them; fp32, tf32; "
        "or a recipe: "
        + ", ".join(name for name in PRECISIONS if "-" in name or name == "autocast")
        + "; default: bf16, "
        "of a perceptron fp32.",
    ),
]
UsualStack = Annotated[
    str | None,
    Parameter(
        name="--stack",
        group=JOB,
        help="Software assumed: a stack (`shardwise stacks` lists them), or 'software=TEXT' as in a table of runs; "
        "default: megatron-core, for a perceptron shardwise's own.",
    ),
]
Tokens = Annotated[
    str | None, Parameter(group=JOB, help="Tokens to train on in all, such as 15T: adds days and dollars.")
]
Failures = Annotated[
    str,
    Parameter(
        group=JOB,
        help="How often the whole run is stopped: llama-3, rsc-1, rsc-2, opt-175b as published, '419/16384x54d' as you "
        "counted, '3.1 h' between two, or off.",
    ),
]

GradDtype = Annotated[
    str | None,
    Parameter(
        name="--grad-dtype", group=JOB, help="bf16 or fp32: gradients added up and reduced; default: the precision's."
    ),
]
LossName = Annotated[
    str,
    Parameter(
        name="--loss", group=POLICY, help="plain, fused or chunked loss over the vocabulary; default: the stack's."
    ),
]
ModuleNames = Annotated[
    str,
    Parameter(
        name="--recompute-modules",
        group=POLICY,
        help="What selective recompute repeats: core_attn, mla_up_proj, layernorm, moe_act, mlp, moe, shared_experts.",
    ),
]
OffloadShare = Annotated[
    float,
    Parameter(
        name="--offload-share", group=POLICY, help="Share of the optimizer, or of the layers, that --offload moves."
    ),
]

Imbalance = Annotated[
    float | None, Parameter(group=JOB, help="Tokens of the fullest expert rank over the mean; default: the stack's.")
]
Dispatcher = Annotated[
    str | None,
    Parameter(group=POLICY, help="How tokens reach their experts: alltoall, flex or allgather; default: the stack's."),
]

DEFAULT_STACK = "megatron-core"
BY_TEXT = "software="
"""before a program's own name: the stack it is taken as, or the usual one where it is not known, is said"""
DEFAULT_PRECISION = "bf16"
OWN_STACK = "shardwise"
"""of models that read examples: `run` trains them, the programs of language models do not"""
DEFAULT_TOKENS = 2**22
"""of a step on a cluster of 64 GPUs or more, where language models are trained with batches of some million tokens"""
DEFAULT_TOKENS_PER_GPU = 2**16
"""on fewer: some seconds of work for each, in place of minutes"""
LARGE_TOKENS_PER_GPU, LARGEST_TOKENS = 2**10, 2**24
"""beyond 4,096 GPUs, up to the step of Llama 3.1 405B: 16M tokens on 16,384 (arXiv:2407.21783, section 3.4)"""
DEFAULT_EXAMPLES = 1024
"""of a step, where a model reads examples instead of tokens"""
PICTURE_TOKENS = 2 * MOST_ASSUMED
"""of a micro-batch of pictures: 64 or 128 of them where a picture has some 200 tokens, as they are trained"""
DEFAULT_PICTURES = 4096
"""of a step of a model of pictures (arXiv:2010.11929, table 3)"""
EPOCHS, IMAGENET = 300, 1_281_167
"""of a classifier of pictures (arXiv:2012.12877, table 9, and ImageNet-1k's training set)"""
MOST_ROUNDING = 0.05
MOST_IMBALANCE = 1000


def job_of(
    model: Model,
    seq: str | None,
    batch: str | None,
    precision: Precision,
    optimizer: str,
    tokens: str | None,
    grad_dtype: str | None = None,
    *,
    gpus: int | None = None,
) -> tuple[Job, list[str]]:
    """The job, and one note for each thing that was assumed. `gpus`: the most of a cluster that is to run it."""
    notes: list[str] = []
    if model.inputs == "features":
        if seq not in (None, "1"):
            raise ValueError(f"seq: {seq!r}, but {model.name} reads single examples; write 1 or leave --seq away")
        if batch is None:
            notes.append(f"--global-batch not given: {DEFAULT_EXAMPLES:,} examples assumed")
        seq, batch = "1", batch or str(DEFAULT_EXAMPLES)
    length = sequence_of(model, seq, notes)
    if model.inputs == "patches" and batch is None:
        batch = str(_usual_pictures(gpus))
        notes.append(f"--global-batch not given: {int(batch):,} pictures = {int(batch) * length:,} tokens assumed")
    if batch is None:
        sequences = divisible_near(_usual_tokens(gpus) / length)
        notes.append(f"--global-batch not given: {sequences:,} sequences = {sequences * length:,} tokens assumed")
    else:
        sequences = batch_sequences(batch, length, notes)
    job = Job(
        seq=length, global_batch=sequences,
        precision=precision if grad_dtype is None else with_grad_dtype(precision, grad_dtype),
        optimizer=optimizer_of(optimizer),
        tokens=float(count_of(tokens, "tokens")) if tokens is not None else 0.0,
    )  # fmt: skip
    return job, notes


def _usual_tokens(gpus: int | None) -> int:
    """Of a step, where nobody says."""
    if gpus is None:
        return DEFAULT_TOKENS
    large = min(max(DEFAULT_TOKENS, LARGE_TOKENS_PER_GPU * gpus), LARGEST_TOKENS)
    return min(large, DEFAULT_TOKENS_PER_GPU * gpus)


def _usual_pictures(gpus: int | None) -> int:
    """Of a step, where nobody says: about as many as ViT was trained with, the same number for each GPU."""
    each = max(round(DEFAULT_PICTURES / gpus), 1) if gpus else DEFAULT_PICTURES
    return each * (gpus or 1)


def usual_training(model: Model) -> tuple[float, str]:
    """Tokens of a whole run where nobody says, and in words how many these are."""
    if model.inputs == "patches":
        length = usual_sequence(model)
        return float(EPOCHS * IMAGENET * length), f"{EPOCHS} epochs of ImageNet's {IMAGENET:,} pictures"
    return TOKENS_PER_PARAMETER * active_parameters(model), f"{TOKENS_PER_PARAMETER:g} per parameter"


def usual_micro(model: Model, job: Job, dp: int) -> int:
    """Samples of a micro-batch where nobody says: one sequence; of a rank's examples all, of its pictures as many
    as have the tokens of a long sequence or two."""
    share = max(job.global_batch // max(dp, 1), 1)
    if model.inputs == "features":
        return share
    if model.inputs != "patches":
        return 1
    most = max(PICTURE_TOKENS // job.seq, 1)
    return max(each for each in range(1, min(most, share) + 1) if share % each == 0)


def with_failures(job: Job, failures: str, gpus: int) -> Job:
    """The job with the rate at which it is stopped, which has to be one that can be read."""
    if failures not in (USUAL_FAILURES, NO_FAILURES):
        from shardwise.operate.failures import rates_of  # most answers are of no whole run

        rates_of(failures, gpus)
    return replace(job, failures=failures)


def sequence_of(model: Model, seq: str | None, notes: list[str]) -> int:
    """Tokens of a sequence: stated, or the model's own with a note that says so."""
    length = usual_sequence(model) if seq is None else sequence_tokens(seq, "seq")
    if length < 1:
        raise ValueError(f"seq: {seq!r} is out of range; write a whole number of 1 or more")
    check_sequence(model, length)
    notes += [f"--seq not given: {length:,} assumed, {_whence(model)}"] if seq is None else in_full(seq, length)
    if 0 < model.context < length:
        table = "a longer table of them" if model.positions else "rotary angles stretched to it"
        notes.append(
            f"--seq {length:,} is beyond {model.name}'s {model.context:,} positions: training so takes {table}"
        )
    return length


def _whence(model: Model) -> str:
    if model.inputs == "features":
        return "one example"
    if model.sample_tokens:
        return f"the patches and learned tokens of one picture of {model.name}"
    if not model.context:
        return f"{model.name}'s file states no positions"
    if model.context <= MOST_ASSUMED:
        return f"{model.name}'s own positions"
    return f"the length most tokens are trained at; {model.name}'s positions reach {model.context:,}"


def precision_asked(name: str | None, model: Model, stack: Stack) -> Precision:
    """A dtype is what the program makes of it, as in `validate`; by default what the model is usually trained in."""
    return stack.precision(name or usual_precision(model))


def software_of(name: str | None, imbalance: float | None, model: Model, dispatcher: str | None = None) -> Stack:
    """The stack named, or the model's usual one, with the routing and exchange of tokens a user expects."""
    stack = _stack(name or (OWN_STACK if model.inputs == "features" else DEFAULT_STACK))
    if dispatcher is not None:
        stack = with_dispatcher(stack, dispatcher)
    if imbalance is None:
        return stack
    if not 1 <= imbalance <= MOST_IMBALANCE:
        raise ValueError(f"imbalance: {imbalance:g} is out of range; write 1 (balanced) or more, such as 1.5")
    return stack.changed(expert_imbalance=imbalance, imbalance_ranks=0)


def _stack(name: str) -> Stack:
    if name.startswith(BY_TEXT):
        text = name.removeprefix(BY_TEXT).strip()
        if not text:
            raise ValueError(f"stack: {name!r} names no program; write its name behind it, such as '{BY_TEXT}GPT-NeoX'")
        return stack_for(text)
    try:
        return known_stack(name)
    except ValueError as error:
        raise ValueError(f"{error} (a program that has no stack: --stack '{BY_TEXT}{name}')") from None


def modules_of(text: str) -> tuple[str, ...]:
    """'layernorm,moe_act' as a policy has it; unknown names are refused there."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def batch_sequences(text: str, seq: int, notes: list[str], what: str = "global-batch") -> int:
    """'4M tokens' or '4M-tokens' counts tokens; '2048' or '2048 sequences' counts sequences."""
    plain = re.sub(r"[-_](tokens?|sequences?)\s*$", r" \1", text)
    count = count_of(plain, what)
    if not re.search(r"tokens?\s*$", plain, re.IGNORECASE):
        return count
    sequences = divisible_near(count / seq)
    if sequences * seq != count:
        notes.append(f"{text!r} is {count / seq:,.1f} sequences: taken as {sequences:,} = {sequences * seq:,} tokens")
    return sequences


def divisible_near(wanted: float) -> int:
    """The whole number within 5 % that divides by the highest power of two: a batch has to be dealt out to ranks."""
    if wanted == int(wanted) or wanted < 1:
        return max(int(wanted), 1)
    step = 1
    while step * 2 <= wanted and abs(round(wanted / (step * 2)) * step * 2 / wanted - 1) <= MOST_ROUNDING:
        step *= 2
    return max(round(wanted / step) * step, 1)


def job_words(job: Job) -> list[str]:
    """The job as flags, for a command line the user can run."""
    words = ["--seq", str(job.seq), "--global-batch", str(job.global_batch)]
    if job.precision.name != "bf16":
        words += ["--precision", job.precision.name]
    if job.optimizer.name != USUAL:
        words += ["--optimizer", job.optimizer.name]
    if job.uneven:
        words.append("--uneven")
    if job.pipeline_passes > 1:
        words += ["--pipeline-passes", str(job.pipeline_passes)]
    return words + tuning_words(job.tuning)
