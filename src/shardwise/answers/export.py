"""`export`: a policy as the files that launch it with another program, and what that program does without."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import Struct

from shardwise.answers.answer import Answer, FactList, Figure, Notes, Part, Text
from shardwise.answers.cannot_run import CannotRunAnswer
from shardwise.answers.posttrain import PosttrainRow, PosttrainTerms
from shardwise.fields import Fields, converted
from shardwise.programs.formats import Format, Launch, expressed, word_of
from shardwise.programs.formats._hints import kubernetes, ray, segment_lines
from shardwise.programs.formats._improve import planned_for, step_change
from shardwise.programs.formats._ranks import group_file, rank_table
from shardwise.programs.formats._rollout import StatedRollout
from shardwise.programs.formats._rollout_write import RolloutLaunch, written_rollout
from shardwise.programs.formats._scripts import sbatch
from shardwise.programs.formats._smoke import TRIAL, with_smoke
from shardwise.programs.formats._unmodelled import not_stated
from shardwise.question import RECOMMENDED, PolicyQuestion, with_policy
from shardwise.question.studies.build import report_of
from shardwise.report.report import Report
from shardwise.report.terminal import policy_code
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.posttrain.engine import HOST_GPUS, MOST_HOST_GPUS
from shardwise.step.posttrain.phases import HYBRID, SPLIT

CONTENTS = {
    TRIAL: "tiny data and a tiny model, to try the rest with",
    "train.sh": "starts the ranks of one node (torchrun)", "job.sbatch": "starts all nodes (sbatch, srun)",
    "kubernetes.yaml": "a job with a pod on every host, for Kueue to keep together",
    "ray.json": "a placement group: a bundle for every host",
    "ranks.csv": "every rank's node, GPU, NIC and groups", "groups.json": "the groups of each axis, as ranks",
}  # fmt: skip
"""file -> what it holds; others are the program's configuration"""


class MissingSetting(Struct, frozen=True, kw_only=True):
    """A field of the policy that the program cannot state."""

    field: str
    value: Any
    instead: Mapping[str, Any] | None
    """fields as the program runs them"""
    why: str
    step_change: float
    """share of the step's time: above zero is slower"""

    def __str__(self) -> str:
        instead = ", ".join(f"{name} {word_of(value)}" for name, value in (self.instead or {}).items())
        return f"{instead} instead of {word_of(self.value)}: step {self.step_change:+.1%} ({self.why})"


class ExportAnswer(Answer, frozen=True, kw_only=True):
    target: str
    program: str
    version: str | None
    policy: Policy
    policy_origin: str
    step_s: float
    fits: bool
    environment: Mapping[str, str]
    without: Sequence[MissingSetting]
    files: Mapping[str, str]
    """name -> text, or the path where a folder was named"""
    folder: str | None
    launched: Sequence[str]
    """files that the program itself reads"""
    estimate: Report

    @property
    def exit_code(self) -> int:
        return 0 if self.fits else 1

    def parts(self) -> Iterator[Part]:
        if self.folder is None:
            shown = [*self.launched, *({TRIAL} & self.files.keys())]
            yield from (Text(f"==> {name} <==\n{self.files[name]}") for name in shown)
        else:
            contents = [(name, CONTENTS.get(name, "the configuration")) for name in self.files]
            yield FactList(f"{self.program}, in {self.folder}", [("policy", policy_code(self.policy)), *contents])
        if self.without:
            yield Notes([str(each) for each in self.without], f"{self.program} does without")
        yield Figure(self.estimate._repr_html_)
        step = f"{self.step_s:.4g} s a step, {self.estimate.verdict}"
        yield FactList("", [("predicted", step)])


class PosttrainExportAnswer(Answer, frozen=True, kw_only=True):
    """A layout of `posttrain` as the file that starts it."""

    target: str
    files: Mapping[str, str]
    """name -> text, or the path where a folder was named"""
    folder: str | None = None

    def parts(self) -> Iterator[Part]:
        if self.folder is None:
            yield from (Text(f"==> {name} <==\n{text}") for name, text in self.files.items())
        else:
            yield FactList(f"{self.target}, in {self.folder}", [(name, "starts it") for name in self.files])


ANSWERS = (ExportAnswer, PosttrainExportAnswer, CannotRunAnswer)


def posttrain_export(target: str, document: Mapping[str, Any], name: str, model: str) -> PosttrainExportAnswer:
    """`document`: what `posttrain --json` wrote; its recommended layout. `model`: in place of its name of it."""
    fields = Fields(document, f"plan {name!r}")
    if document.get("recommended") is None:
        raise ValueError(f"plan: {name!r} has no layout that fits; ask posttrain for more GPUs")
    terms = converted(fields.value("job", WANTED), PosttrainTerms, fields.at("job"), WANTED)
    take = converted(fields.value("recommended", WANTED), PosttrainRow, fields.at("recommended"), WANTED)
    if take.mode == HYBRID:
        raise ValueError("layout: hybrid is stated in no program's file here; ask posttrain with --layout split")
    apart = take.mode == SPLIT
    stated = StatedRollout(
        program=fields.text("stack"), algorithm=fields.text("algorithm"), prompts=terms.prompts, group=terms.group,
        prompt_tokens=terms.prompt_tokens, cap=terms.cap, layout=take.mode,
        rollout_gpus=take.rollout_gpus if apart else None, gpus=take.train_gpus + (take.rollout_gpus if apart else 0),
        engine_tp=take.engine_tp, engine_share=take.engine_share, lag=take.lag, updates=terms.updates,
        reference=terms.reference, rollout_precision=terms.rollout_precision,
    )  # fmt: skip
    size = cluster_of(fields.text("cluster")).node_size
    launch = RolloutLaunch(
        stated=stated, policy=take.policy, model=model, node_gpus=HOST_GPUS if size > MOST_HOST_GPUS else size
    )
    notes = ["data, prompts and rewards are yours" + ("" if model else "; MODEL_PATH too, or --model")]
    return PosttrainExportAnswer(target=target, files=written_rollout(target, launch), notes=notes)


WANTED = "what `shardwise posttrain --json` prints"


def for_target(target: Format, launch: Launch, ask: PolicyQuestion) -> tuple[PolicyQuestion, Launch]:
    """Where nobody stated the policy and the target cannot run the recommended one: planned for the target."""
    try:
        expressed(target, launch)
    except ValueError as error:
        policy = planned_for(target, launch, ask.only)
        if policy is None:
            raise
        cost = Policies.of([launch.policy, policy])
        steps = estimate(launch.case, cost).times.step_s
        note = (f"planned for {target.title}, which cannot run {policy_code(launch.policy)} ({error}): "
                f"{policy_code(policy)}, step {steps[1] / steps[0] - 1:+.1%}")  # fmt: skip
        return with_policy(ask, policy, RECOMMENDED, note), replace(launch, policy=policy)
    return ask, launch


def export_answer(target: Format, launch: Launch, ask: PolicyQuestion) -> ExportAnswer:
    """With the text of each file."""
    stated, gaps = expressed(target, launch)
    without = [
        MissingSetting(field=gap.field, value=gap.value, instead=gap.instead, why=gap.why,
                       step_change=step_change(launch, gap))
        for gap in gaps
    ]  # fmt: skip
    report = report_of(stated.case, stated.policy)
    comments = (f"predicted: {report.step_s:.4g} s a step, {report.verdict}", *map(str, without))
    stated = replace(stated, comments=comments)
    written = target.written(stated)
    launched, said = with_smoke(written.files, target.smoke)
    files = {**launched, **({TRIAL: written.trial} if written.trial else {})}
    files |= {"job.sbatch": sbatch(stated, target.name, "train.sh", segment_lines(stated))}
    files |= {"kubernetes.yaml": kubernetes(stated, target.name), "ray.json": ray(stated)}
    files |= {"ranks.csv": rank_table(stated), "groups.json": group_file(stated)}
    return ExportAnswer(
        target=target.name, program=target.title, version=stated.version or None, policy=stated.policy,
        policy_origin=ask.origin, step_s=report.step_s, fits=report.fits, environment=written.environment,
        without=without, files=files, folder=None, estimate=report,
        launched=list(launched),
        notes=[*written.notes, *not_stated(target, stated), *ask.notes, *said],
    )  # fmt: skip
