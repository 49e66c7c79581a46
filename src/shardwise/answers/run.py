"""`run`: what training with a policy came to, and its step as it was predicted and as it was measured."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Annotated, ClassVar

from msgspec import Struct

from shardwise.answers.answer import SIZES, Answer, Cell, FactList, Figure, Part, shown, table
from shardwise.answers.cannot_run import CannotRunAnswer
from shardwise.question import PolicyQuestion
from shardwise.report.charts import chart_svg
from shardwise.report.course_figure import course_chart
from shardwise.report.terminal import policy_text
from shardwise.run.runtime.train.ending import TrainingResult
from shardwise.run.runtime.train.lines import StepLine
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy
from shardwise.units import time_text


class PredictedStep(Struct, frozen=True, kw_only=True):
    predicted_s: float
    predicted_for: str
    measured_s: float | None
    """median; None where no step was made"""
    measured_on: str
    slower: float | None
    """measured over predicted, less one; None where the prediction is of another machine"""
    first_s: float | None = None
    """of the first step, which compiles kernels and fills caches; None where few were made"""
    warm_up_s: float | None = None
    """by which the steps that are left out of `measured_s` took longer than those after them"""

    def text(self) -> str:
        predicted = f"predicted {time_text(self.predicted_s)}"
        if self.measured_s is None:
            return f"{predicted} on {self.predicted_for}, nothing measured"
        measured = f"measured {time_text(self.measured_s)}"
        if self.slower is None:
            return f"{predicted} on {self.predicted_for}, {measured} here on {self.measured_on}: another machine"
        return f"{predicted}, {measured} ({self.slower:+.1%})"

    def warm_up_text(self) -> str | None:
        if self.first_s is None or self.warm_up_s is None:
            return None
        return f"{time_text(self.warm_up_s)} longer than as many later steps; first step {time_text(self.first_s)}"


UPDATE = "update"


class RunPhase(Struct, frozen=True, kw_only=True):
    """Of a step of post-training."""

    phase: Annotated[str, shown("phase")]
    seconds: Annotated[float | None, shown("s", "s")]
    """median of the steps; None: what it takes is in another phase"""
    sent_bytes: Annotated[float | None, shown("sent", SIZES)]
    """by all ranks, in all steps; None: nothing is sent in it"""
    expected_bytes: Annotated[float | None, shown("predicted", SIZES)]


class RunAnswer(Answer, frozen=True, kw_only=True):
    origin_first: ClassVar[bool] = True

    model: str
    policy: Policy
    ranks: int
    device: str
    precision: str
    rate: float
    warmup_steps: int
    step: PredictedStep
    steps: Sequence[StepLine]
    held_out: str
    """data of the evaluation, in words"""
    exported: str | None
    stopped: str | None
    policy_origin: str
    code: int
    """exit code"""
    phases: Sequence[RunPhase] = ()
    """of post-training"""

    @property
    def exit_code(self) -> int:
        return self.code

    def parts(self) -> Iterator[Part]:
        policy, lines = self.policy, self.steps
        ranks = "1 rank" if policy.gpus == 1 else f"{policy.gpus} ranks"
        where = f"{ranks} on {self.device} in {self.precision}"
        first_last = (
            f"{lines[0].loss:.4f} -> {lines[-1].loss:.4f} over {len(lines)} steps" if lines else "nothing to do"
        )
        rate: Cell = f"{self.rate:.3g}, rising over {self.warmup_steps} steps" if self.warmup_steps else self.rate
        facts: list[tuple[str, Cell]] = [
            ("policy", f"{policy_text(policy)}, schedule {policy.schedule}, {where}"), ("loss", first_last),
            ("reward", self._reward()), ("rate", rate),
            (UPDATE if self.phases else "step", self.step.text()),
            ("warm-up", self.step.warm_up_text()), ("held out", self._evaluated()),
            ("weights", self.exported),
        ]  # fmt: skip
        yield FactList(f"{self.model}: {'stopped' if self.stopped else 'trained'}", facts)
        if self.phases:
            yield table("phases", self.phases)
        if lines:
            yield Figure(lambda: _course_svg(lines))

    def _reward(self) -> str | None:
        found = [line.rollout.reward for line in self.steps if line.rollout is not None]
        return f"{found[0]:.4f} -> {found[-1]:.4f}" if found else None

    def _evaluated(self) -> str | None:
        found = [line for line in self.steps if line.eval_loss is not None]
        if not found:
            return None
        last = found[-1]
        quality = f"accuracy {last.accuracy:.1%}" if last.perplexity is None else f"perplexity {last.perplexity:,.3f}"
        return f"{quality}, loss {last.eval_loss:.4f} after step {last.step}, of {self.held_out}"


ANSWERS = (RunAnswer, CannotRunAnswer)


def run_answer(
    ask: PolicyQuestion, result: TrainingResult, step: PredictedStep, *, device: str, rate: float, warmup: int,
    held_out: Sequence[str],
) -> RunAnswer:  # fmt: skip
    """`held_out`: files of the evaluation."""
    unwritten = [result.text()] if result.unwritten else []
    return RunAnswer(
        model=ask.model.name, policy=ask.policy, ranks=ask.policy.gpus, device=device,
        precision=ask.job.precision.name, rate=rate, warmup_steps=warmup, step=step, steps=result.lines,
        held_out=_data_words(held_out, ask.model), exported=result.exported or None, stopped=result.stopped or None,
        policy_origin=ask.origin, code=result.code, notes=[*ask.notes, *result.remarks, *unwritten],
        phases=list(_phases(result.lines)),
    )  # fmt: skip


def _phases(lines: Sequence[StepLine]) -> Iterator[RunPhase]:
    found = [line.rollout for line in lines if line.rollout is not None]
    names = dict.fromkeys(name for each in found for name in (*each.seconds, *each.bytes))
    for name in names:
        seconds = [each.seconds[name] for each in found if name in each.seconds]
        sent = any(name in each.bytes for each in found)
        yield RunPhase(
            phase=name, seconds=median(seconds) if seconds else None,
            sent_bytes=sum(each.bytes[name] for each in found) if sent else None,
            expected_bytes=sum(each.expected_bytes[name] for each in found) if sent else None,
        )  # fmt: skip


def _course_svg(lines: Sequence[StepLine]) -> str:
    held = [(line.step, line.eval_loss) for line in lines if line.eval_loss is not None]
    losses = [("in training", [(line.step, line.loss) for line in lines]), ("held out", held)]
    times = [("step", [(line.step, line.step_s * 1e3) for line in lines])]
    return chart_svg(course_chart("how it went", [("loss", losses), ("step, ms", times)], "step"))


def _data_words(data: Sequence[str], model: Model) -> str:
    if data:
        return "scikit-learn's digits" if data[0] == "digits" else data[0] if len(data) == 1 else f"{len(data)} files"
    return "digits drawn here (no MNIST is shipped)" if model.inputs == "features" else "the built-in text"
