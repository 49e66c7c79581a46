"""`check`: what a launch file says, whether that can run and fits, and faster policies that its program can state."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as with_
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct, field
from msgspec.structs import replace

from shardwise.answers.answer import Answer, Cell, FactList, Figure, Notes, Part, Text, shown, table
from shardwise.answers.posttrain import PosttrainAnswer, posttrain_answer
from shardwise.programs.formats import Format, Found, Launch, word_of
from shardwise.programs.formats._improve import Improvement, best_stated, improvements
from shardwise.programs.formats._rollout import StatedRollout
from shardwise.programs.formats._rollout_question import lengths_of_stated, rollout_question
from shardwise.programs.formats._unmodelled import without_influence
from shardwise.question import PolicyQuestion
from shardwise.question.command import command_of
from shardwise.question.studies.build import report_of
from shardwise.report.report import Report
from shardwise.report.terminal import policy_code
from shardwise.spec.cluster import Cluster
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy
from shardwise.spec.rules import verdict_of
from shardwise.step.estimate.change import change_ranges

SHOWN = 12
"""settings listed on the screen; JSON has all"""
Setting = int | float | str | bool | Sequence[str] | None


class SettingChange(Struct, frozen=True, kw_only=True):
    before: Setting = field(name="from")
    after: Setting = field(name="to")


def _changes_text(changes: Mapping[str, SettingChange]) -> str:
    return ", ".join(f"{name} {word_of(each.before)} -> {word_of(each.after)}" for name, each in changes.items())


def _range_text(ends: tuple[float, float]) -> str:
    return f"{ends[0]:+.0%} .. {ends[1]:+.0%}"


class PolicyChange(Struct, frozen=True, kw_only=True):
    changes: Annotated[dict[str, SettingChange], shown("change", _changes_text)]
    policy: Policy
    step_s: Annotated[float, shown("step s", "s")]
    step_change: Annotated[float, shown("step", "change")]
    """share of the step's time: below zero is faster"""
    step_change_range: Annotated[tuple[float, float] | None, shown("80% of runs", _range_text)] = None
    """None: nothing like it was measured"""


class FileChange(Struct, frozen=True, kw_only=True):
    """What `--fix` changed in the files."""

    policy: Policy
    diff: str
    files: Sequence[str]
    """written; none where the diff is only shown"""
    environment: Mapping[str, str | None]
    notes: Sequence[str]


class CheckAnswer(Answer, frozen=True, kw_only=True):
    target: str
    program: str
    policy: Policy
    gpus: int | None
    seq_tokens: int | None
    global_sequences: int | None
    pipeline_passes: int
    model: str | None
    """as the file names it"""
    tune: str | None
    """adapters in place of full training, as `--tune` has it"""
    freeze: str | None
    """frozen parts, as `--freeze` has it"""
    precision: str | None
    optimizer: str | None
    layers: Sequence[int] | None
    software: Mapping[str, Any]
    not_modelled: Sequence[str]
    """settings that change the step and that the prediction does not follow"""
    without_influence: Sequence[str]
    """settings known not to change a step"""
    not_understood: Sequence[str]
    """settings that nothing here knows"""
    judged: bool
    """whether model and cluster are known, so that the rest could be found out"""
    legal: bool | None
    fits: bool | None
    rule: str | None
    why: str | None
    nearest: Policy | None
    nearest_command: str | None
    step_s: float | None
    peak_bytes: float | None
    improvements: Sequence[PolicyChange]
    best: PolicyChange | None
    """the one to take of a whole plan, as the program can state it"""
    fix: FileChange | None = None
    estimate: Report | None
    """of the file's policy; of reinforcement learning its update alone"""
    rollout: StatedRollout | None = None
    """of reinforcement learning, as the file states it"""
    posttrain: PosttrainAnswer | None = None
    """the whole step of it; None: it has something that is not priced"""

    @property
    def exit_code(self) -> int:
        return 1 if self.judged and not self.fits else 0

    def parts(self) -> Iterator[Part]:
        yield FactList(f"{self.program}: contents of the file", [*self._stated(), *self._verdict()])
        if self.estimate is not None:
            yield Figure(self.estimate._repr_html_)
        if self.posttrain is not None:
            yield from self.posttrain.parts_of_step()
        if self.improvements:
            title = f"one setting changed, as {self.program} can state it"
            yield table(title, self.improvements, breaks=0, bars=("step s",))
        best = self.best
        if best is not None and best.changes and best.step_change < 0:
            ends = best.step_change_range
            line = f"{policy_code(best.policy)}: {best.step_s:.4g} s, step {best.step_change:+.1%}"
            line += f" ({_range_text(ends)} in 80% of runs)" if ends else ""
            yield Notes([line], f"the policy to take, of all that {self.program} can state")
        yield from _list("changes the step and is not modelled", self.not_modelled)
        yield from _list("not understood: may or may not change the step", self.not_understood)
        yield from _list("known not to change the step", self.without_influence)
        if self.fix is not None:
            yield Text(self.fix.diff.rstrip("\n"))

    def _stated(self) -> Iterator[tuple[str, Cell]]:
        yield "model", self.model
        yield "policy", policy_code(self.policy)
        yield "GPUs", self.gpus
        yield "rollout", _rollout_text(self.rollout) if self.rollout is not None else None
        yield "sequence", self.seq_tokens
        yield "batch", self.global_sequences
        yield "passes", self.pipeline_passes if self.pipeline_passes > 1 else None
        yield "tuning", self.tune
        yield "frozen", self.freeze
        yield "precision", self.precision
        yield "optimizer", self.optimizer
        yield from ((name.replace("_", " "), value) for name, value in self.software.items())
        yield "layers", " ".join(map(str, self.layers)) if self.layers else None

    def _verdict(self) -> Iterator[tuple[str, Cell]]:
        if self.rule is not None:
            yield "verdict", f"cannot run: {self.rule}"
            yield "because", self.why
            yield "nearest", self.nearest_command or "none is near"
        elif self.estimate is not None:
            yield "verdict", self.why
            yield "step", f"{self.estimate.step_s:.4g} s, MFU {self.estimate.mfu_causal_half:.1%}"
            yield "error", self.estimate.error_basis


def _rollout_text(stated: StatedRollout) -> str:
    where = "on the same GPUs" if stated.rollout_gpus is None else f"on {stated.rollout_gpus} GPUs of its own"
    late = f", at most {stated.lag} steps old" if stated.lag else ""
    return (
        f"{stated.algorithm}, {stated.prompts:,} prompts x {stated.group} answers of at most {stated.cap:,} tokens "
        f"{where}, engines of {stated.engine_tp}{late}"
    )


ANSWERS = (CheckAnswer,)


def rollout_answer(
    form: Format,
    found: Found,
    shape: Model,
    cluster: Cluster,
    lengths: str,
    *,
    model: str,
    on: str,
    profile: Path | None = None,
) -> tuple[PosttrainAnswer | None, list[str]]:
    """A whole step of reinforcement learning as the file has it, and notes; none where something is not priced."""
    stated = found.rollout
    assert stated is not None
    if stated.refused:
        return None, [f"the step as a whole is not priced: {why}" for why in stated.refused]
    try:
        ask = rollout_question(form, found, stated, shape, cluster, lengths, profile)
        answer = posttrain_answer(ask, model=model, on=on)
    except ValueError as error:
        return None, [f"the step as a whole is not priced: {error}"]
    notes = list(answer.notes)
    if stated.gpus and stated.gpus != cluster.gpus:
        notes.append(f"the file has {stated.gpus} GPUs that train or roll out, the cluster named has {cluster.gpus}")
    asked = f"--prompts {stated.prompts} --group {stated.group} --lengths {lengths or lengths_of_stated(stated)}"
    notes.append(f"faster layouts: shardwise posttrain {model} --on {on} --stack {stated.program} {asked}")
    return replace(answer, notes=()), notes


def check_answer(
    form: Format, found: Found, ask: PolicyQuestion | None, *, model: str = "", on: str = "",
    notes: Sequence[str] = (), posttrain: PosttrainAnswer | None = None,
) -> CheckAnswer:  # fmt: skip
    """`ask`: the question that the files put, where model and cluster are known; both as a command line names them."""
    idle = [text for text in found.unmodelled if without_influence(text, form.name)]
    answer = CheckAnswer(
        target=form.name, program=form.title, policy=found.policy, gpus=found.gpus, seq_tokens=found.seq,
        global_sequences=found.global_batch, pipeline_passes=found.pipeline_passes, precision=found.precision or None,
        model=found.called or None, tune=found.tune or None, freeze=found.freeze or None,
        optimizer=found.optimizer or None, layers=found.layers or None, software=found.software,
        not_modelled=found.not_modelled, without_influence=idle,
        not_understood=[text for text in found.unmodelled if text not in idle],
        judged=ask is not None, legal=None, fits=None, rule=None, why=None, nearest=None, nearest_command=None,
        step_s=None, peak_bytes=None, improvements=(), best=None, estimate=None, notes=notes,
        rollout=found.rollout, posttrain=posttrain,
    )  # fmt: skip
    return answer if ask is None else _judged(answer, form, launch_of(found, ask, model), on)


def launch_of(found: Found, ask: PolicyQuestion, model: str) -> Launch:
    return Launch(ask.case, ask.policy, found.layers, found.version, model)


def _judged(answer: CheckAnswer, form: Format, launch: Launch, on: str) -> CheckAnswer:
    case, policy = launch.case, launch.policy
    verdict = verdict_of(case.model, case.cluster, case.job, policy)
    answer = replace(answer, policy=policy, legal=verdict.legal, fits=False)
    if not verdict.legal:
        near = verdict.cure
        command = command_of(launch.called, on, case.job, near, case.stack.name) if near else None
        return replace(answer, rule=verdict.rule, why=verdict.why, nearest=near, nearest_command=command)
    report = report_of(case, policy)
    best = best_stated(form, with_(launch, layers=()))
    changed = improvements(form, launch)
    *single, whole = policy_changes(launch, [*changed, best])
    return replace(
        answer, fits=report.fits, why=report.verdict, step_s=report.step_s, peak_bytes=report.peak_bytes,
        improvements=[each for each in single if each is not None], best=whole, estimate=report,
    )  # fmt: skip


def policy_changes(launch: Launch, found: Sequence[Improvement | None]) -> list[PolicyChange | None]:
    """Each with the range that its gain may have."""
    policies = [each.policy for each in found if each is not None]
    ranges = iter(change_ranges(launch.case, launch.policy, policies))
    return [None if each is None else _policy_change(each, next(ranges)) for each in found]


def _policy_change(found: Improvement, ends: tuple[float, float] | None) -> PolicyChange:
    changes = {name: SettingChange(before=old, after=new) for name, (old, new) in found.fields.items()}
    return PolicyChange(
        changes=changes, policy=found.policy, step_s=found.step_s, step_change=found.step_change,
        step_change_range=ends,
    )  # fmt: skip


def _list(title: str, lines: Sequence[str]) -> Iterator[Part]:
    more = [f"and {len(lines) - SHOWN} more (--json lists all)"] if len(lines) > SHOWN else []
    if lines:
        yield Notes([*lines[:SHOWN], *more], title)
