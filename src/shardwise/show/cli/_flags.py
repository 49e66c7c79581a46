"""The flags of a question, which every verb that takes a job takes, and the question they make."""

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.cannot_run import cannot_run
from shardwise.question import PolicyQuestion, Question, open_question_of, question_of
from shardwise.show.cli._groups import POLICY
from shardwise.show.cli._options import flags
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import bar
from shardwise.spec.cards import named_with
from shardwise.spec.parameters import ON, CaseOptions, Options, SharedOptions, flag_of, stated
from shardwise.spec.sizes import Sizes

DOES_NOT_FIT = 1
_LENGTHS = "estimate, plan, compare and sweep"
TAKEN_BY = {"lengths": _LENGTHS, "packing": _LENGTHS, "sync": "estimate, plan, compare, sweep and run"}
"""parameters that some verbs refuse, and those that answer for them"""


@flags
class SharedFlags(SharedOptions):
    """Of verbs that compare several precisions and strategies."""


@flags
class JobFlags(Options):
    """Of verbs that have an `--on` of their own."""


@flags
class Flags(Options):
    on: Annotated[str, ON]


def on_of(flags: CaseOptions, on: str = "") -> str:
    """The cluster's name with the network cards stated for it."""
    return named_with(on or getattr(flags, "on", ""), flags.nic)


def asked(model: str, flags: Flags) -> PolicyQuestion:
    """The question about one policy: the stated one, or where none is the recommended one."""
    with bar("policies") as progress:
        return question_of(model, flags.on, flags, progress=progress)


def asked_openly(model: str, on: str, flags: SharedOptions) -> Question:
    """The question about all policies that the flags leave open."""
    return open_question_of(model, on, flags)


def asked_of_sizes(model: str, sizes: Sizes, flags: SharedOptions, gpus: int) -> Question:
    """About a kind of cluster in several sizes, `gpus` of which a usual batch is for; its name states its cards."""
    failures = flags.failures or ""
    if failures[:1].isdigit() and "/" not in failures:
        raise ValueError(
            f"failures: {failures!r} is of one size of cluster; write your own count, such as '12/512x30d' for 12 "
            "failures of 512 GPUs in 30 days"
        )
    cluster = sizes.named or sizes.at(sizes.per_node)
    return open_question_of(model, cluster, replace(flags, nic=None), gpus=gpus)


def leave_out(verb: str, why: str, flags: SharedOptions, *names: str) -> None:
    """Parameters that this verb would answer wrongly."""
    for name in names:
        if getattr(flags, name, None):
            raise ValueError(f"{flag_of(name)}: {verb} {why}; leave --{flag_of(name)} out, {TAKEN_BY[name]} take it")


StageLayers = Annotated[str, Parameter(group=POLICY, help="Layers of each pipeline stage, in order: 10,10,6,6.")]


def with_stage_layers(ask: PolicyQuestion, text: str) -> PolicyQuestion:
    """With stages of so many layers in place of the program's own split."""
    if not text:
        return ask
    policy, layers = ask.policy, ask.model.layers
    words = [word.strip() for word in text.split(",")]
    each = [int(word) for word in words] if all(word.isdecimal() and len(word) < 6 for word in words) else []
    if policy.vpp > 1 or len(each) != policy.pp or sum(each) != layers or not all(each):
        wanted = f"{policy.pp} numbers above 0 joined by commas, one for each stage, that add up to {layers}"
        raise ValueError(f"stage-layers: {text!r} with pp {policy.pp}, vpp {policy.vpp}; write {wanted}, and --vpp 1")
    return replace(ask, stack=ask.stack.changed(stage_split=",".join(map(str, each))))


def without_effect(flags: CaseOptions, what: str, *effective: str) -> list[str]:
    """The note that names parameters which were stated and change nothing here."""
    idle = [f"--{flag_of(name)}" for name in stated(flags) if name not in effective]
    return [f"without effect on {what}: {', '.join(idle)}"] if idle else []


def refused(model: str, on: str, ask: PolicyQuestion, json: bool, verb: str = "estimate") -> bool:
    """Whether the policy cannot run; then the rule, the numbers and the nearest one that can are printed."""
    answer = cannot_run(model, on, ask, verb)
    if answer is not None:
        answered(answer, json)
    return answer is not None
