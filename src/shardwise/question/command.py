"""A policy as the words of a command line."""

import shlex

from shardwise.plugins.optimizers import USUAL
from shardwise.plugins.pipeline import usual_schedule
from shardwise.question.job import DEFAULT_STACK
from shardwise.question.policy import FIELDS
from shardwise.spec.job import Job
from shardwise.spec.parameter import CLUSTER, JOB, POLICY, PROGRAM
from shardwise.spec.parameters import CaseOptions, flag_of, parameters, stated
from shardwise.spec.policy import OVERLAPS, Policy
from shardwise.spec.software import Stack
from shardwise.spec.tuning import Tuning

WORDS = tuple(
    (FIELDS.get(name, name), f"--{flag_of(name)}")
    for name, row in parameters().items() if row.acts_on == POLICY and not row.off
)  # fmt: skip
TARGETS = ("bridge", "megatron", "torchtitan", "nanotron", "deepspeed", "accelerate", "automodel", "maxtext", "trl",
           "axolotl", "llama_factory")  # fmt: skip
"""of `export`, by the part of a program's name that they write for; loading them takes long"""
WRITE_ADAPTERS = ("accelerate", "trl", "axolotl", "llama_factory")
"""targets whose launch can train adapters; a test compares them with the formats"""
USUAL_TARGET = "megatron"
ALWAYS = ("tp", "pp", "dp", "zero")


def command_of(model: str, on: str, job: Job, policy: Policy, stack: str, verb: str = "estimate") -> str:
    """`shardwise VERB ...` for this policy, ready to run."""
    default = Policy()
    words = ["shardwise", *verb.split(), model, "--on", on, *job_words(job)]
    if stack != DEFAULT_STACK:
        words += ["--stack", stack]
    for field, flag in WORDS:
        value = getattr(policy, field)
        implied = field == "schedule" and value == usual_schedule(policy.vpp)
        implied |= field == "offload_share" and policy.offload == "none"
        if field in ALWAYS or (value != getattr(default, field) and not implied):
            words += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    if not policy.sp and policy.tp > 1:
        words.append("--no-sp")
    return shlex.join(words)


def target_of(stack: str) -> str:
    """The target of `export` that writes for a program, or the usual one where none does."""
    usual = "accelerate" if stack.startswith("hugging-face") else USUAL_TARGET
    return next((name for name in TARGETS if name.replace("_", "-") in stack), usual)


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


def tuning_words(tuning: Tuning | None) -> list[str]:
    """What of the model is trained, as flags."""
    if tuning is None:
        return []
    stated = (("--tune", tuning.tune_text), ("--freeze", tuning.freeze_text))
    return [word for flag, text in stated if text for word in (flag, text)]


IN_COMMAND = ("nic", "seq", "global_batch", "precision", "optimizer", "uneven", "pipeline_passes", "tune", "freeze",
              "stack", "grad_dtype")  # fmt: skip
"""parameters that `command_of` writes itself, from the cluster's name, the job and the stack"""


def further_words(options: CaseOptions) -> list[str]:
    """What is stated of cluster, job and program besides what `command_of` writes, as flags."""
    names = [name for name in stated(options, CLUSTER, JOB, PROGRAM) if name not in IN_COMMAND]
    values = {name: getattr(options, name) for name in names}
    words = [(f"--{flag_of(n)}", f"{v:g}" if isinstance(v, float) else str(v)) for n, v in values.items()]
    return [word for pair in words for word in pair]


def overlap_words(policy: Policy, stack: Stack) -> list[str]:
    """The flags of what a policy overlaps otherwise than its program does by itself."""
    usual = stack.overlapping(policy)
    return [
        f"--{'' if getattr(policy, name) else 'no-'}{name.replace('_', '-')}"
        for name in OVERLAPS
        if getattr(policy, name) != getattr(usual, name)
    ]


def changed_words(before: Policy, after: Policy) -> list[str]:
    """The flags that turn one policy into another."""
    words = []
    for field, flag in WORDS:
        value = getattr(after, field)
        if value != getattr(before, field):
            words += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    return words
