"""The job of a question: sequence, batch, precision, optimizer, program, as stated or as usual, with a note of what was
assumed."""

import re

from msgspec.structs import replace

from shardwise.spec.arch.tensors import active_parameters
from shardwise.spec.arch.tuned import tuned
from shardwise.spec.gpu import Gpu
from shardwise.spec.job import (
    MOST_ASSUMED,
    NO_FAILURES,
    USUAL_FAILURES,
    Job,
    Precision,
    check_sequence,
    optimizer_of,
    usual_precision,
    usual_sequence,
    with_grad_dtype,
)
from shardwise.spec.lengths import LengthsChoice, lengths_of
from shardwise.spec.model import Model
from shardwise.spec.parameters import CaseOptions, check_value
from shardwise.spec.software import Stack, known_stack, stack_for
from shardwise.spec.software.dispatcher import with_dispatcher
from shardwise.spec.software.graphs import with_graphs
from shardwise.spec.tuning import tuning_of
from shardwise.step.estimate.chinchilla import TOKENS_PER_PARAMETER
from shardwise.units import bytes_of, count_of, in_full, sequence_tokens

DEFAULT_STACK = "megatron-core"
BY_TEXT = "software="
"""before a program's own name: the stack it is taken as, or the usual one where it is not known, is said"""
DEFAULT_PRECISION = "bf16"
TPU_STACK = "jax"
"""no program of NVIDIA's runs there; MaxText does"""
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
DEFAULT_OPTIMIZER = "adamw"


def whole_job(model: Model, options: CaseOptions, precision: Precision, gpus: int | None) -> tuple[Job, list[str]]:
    """The job with everything that options state of it; `gpus`: those that are to run it."""
    job, notes = job_of(
        model, options.seq, options.global_batch, precision, options.optimizer or DEFAULT_OPTIMIZER, options.tokens,
        options.grad_dtype, gpus=gpus,
    )  # fmt: skip
    job = replace(job, uneven=options.uneven, pipeline_passes=options.pipeline_passes or 1)
    job = _with_tuning(job, model, options.tune, options.freeze)
    return _with_failures(job, options.failures or USUAL_FAILURES, gpus or 1), notes


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
        notes.append(f"--global-batch not given: {int(batch):,} images =  {int(batch) * length:,} tokens assumed")
    if batch is None:
        sequences = batches_near(divisible_near(_usual_tokens(gpus) / length), gpus or 1)[-1]
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
        return float(EPOCHS * IMAGENET * length), f"{EPOCHS} epochs of ImageNet's {IMAGENET:,} images"
    return TOKENS_PER_PARAMETER * active_parameters(model), f"{TOKENS_PER_PARAMETER:g} per parameter"


def batches_near(batch: int, gpus: int) -> tuple[int, ...]:
    """The batch, and the one within 5 % that divides by the odd part of the GPUs and by the highest power of two."""
    odd = gpus // (gpus & -gpus)
    near, step = 0, odd
    while odd > 1 and step <= batch * (1 + MOST_ROUNDING):
        rounded = round(batch / step) * step
        if abs(rounded / batch - 1) <= MOST_ROUNDING:
            near = rounded
        step *= 2
    return (batch,) if near in (0, batch) else (batch, near)


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


def _with_tuning(job: Job, model: Model, tune: str | None, freeze: str | None) -> Job:
    """Names that the model does not have fail here, before anything long."""
    tuning = tuning_of(tune, freeze)
    tuned(model, tuning)
    return job if tuning is None else replace(job, tuning=tuning)


def _with_failures(job: Job, failures: str, gpus: int) -> Job:
    """The job with the rate at which it is stopped, which has to be one that can be read."""
    if failures not in (USUAL_FAILURES, NO_FAILURES):
        from shardwise.step.operate.failures import rates_of  # most answers are of no whole run

        rates_of(failures, gpus)
    return replace(job, failures=failures)


def sequence_of(model: Model, seq: str | None, notes: list[str]) -> int:
    """Tokens of a sequence: stated, or the model's own with a note that says so."""
    length = usual_sequence(model) if seq is None else sequence_tokens(seq, "seq")
    check_value("seq", length)
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
        return f"the patches and learned tokens of one image of {model.name}"
    if not model.context:
        return f"{model.name}'s file states no positions"
    if model.context <= MOST_ASSUMED:
        return f"{model.name}'s own positions"
    return f"as most tokens are trained; positions reach {model.context:,}"


def precision_asked(name: str | None, model: Model, stack: Stack) -> Precision:
    """A dtype is what the program makes of it, as in `validate`; by default what the model is usually trained in."""
    return stack.precision(name or usual_precision(model))


CUTS = ("embedding", "attention_split")
"""of what tensor parallelism cuts, where a program may differ from what all of them do"""


def software_of(options: CaseOptions, model: Model | None, gpu: Gpu) -> Stack:
    """The stack named, or the usual one of model and chip, with the launches and messages a user expects."""
    usual = TPU_STACK if gpu.tpu else DEFAULT_STACK
    stack = _stack(options.stack or (OWN_STACK if model is not None and model.inputs == "features" else usual))
    for name in ("context_parallel", "graphs", *CUTS):
        check_value(name, getattr(options, name))
    if options.dispatcher is not None:
        stack = with_dispatcher(stack, options.dispatcher)
    if options.graphs is not None:
        stack = with_graphs(stack, options.graphs)
    if options.context_parallel is not None:
        stack = stack.changed(context_parallel=options.context_parallel)
    cuts = {name: value for name in CUTS if (value := getattr(options, name)) is not None}
    stack = stack.changed(**cuts) if cuts else stack
    if options.imbalance is None:
        return stack
    check_value("imbalance", options.imbalance)
    return stack.changed(expert_imbalance=options.imbalance, free_router=False)


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


def lengths_choice(model: Model, lengths: str | None, packing: str | None) -> LengthsChoice | None:
    """The lengths of the data; None: all sequences are as long as the job's."""
    check_value("packing", packing)
    if lengths is None:
        if packing is not None:
            raise ValueError(f"packing: {packing} of sequences of one length; write --lengths with it")
        return None
    if model.inputs == "features":
        raise ValueError(f"lengths: {model.name} reads single examples; leave --lengths out")
    if model.sample_tokens:
        raise ValueError(
            f"lengths: every sample of {model.name} is {model.sample_tokens:,} tokens; leave --lengths out"
        )
    if any(layer.tokens for layer in model.kinds):
        raise ValueError(f"lengths: {model.name} has towers with tokens of their own; leave --lengths out")
    return LengthsChoice(lengths=lengths_of(lengths), packing=packing or "off")


def host_bytes_of(text: str | None) -> float | None:
    """Of a node's host for what is offloaded; None: as much as is needed."""
    if text is None:
        return None
    size = bytes_of(text, "host-memory")
    if size < 0:
        raise ValueError(f"host-memory: {text!r} is out of range; write 0 or more, such as '1 TiB'")
    return size


def batch_sequences(text: str, seq: int, notes: list[str], what: str = "global-batch") -> int:
    """'4M tokens' or '4M-tokens' counts tokens; '2048' or '2048 sequences' counts sequences."""
    plain = re.sub(r"[-_](tokens?|sequences?)\s*$", r" \1", text)
    count = count_of(plain, what)
    if re.search(r"[kKmMbBtT]\s*$", plain):
        raise ValueError(f"{what}: {text!r} of what? write '{text.strip()} tokens' or '{text.strip()} sequences'")
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
