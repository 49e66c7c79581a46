"""Measured runs of every table, predicted as if nothing had been fitted on their source, and the classes they are of.

A stack fitted on several sources takes the constants fitted without this one (evidence/accuracy/left_out.json); one
fitted on this source alone goes back to what it is like.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import expm1, hypot
from pathlib import Path
from tomllib import loads
from typing import Any

from _accuracy_data import ONE_GPU, fitted_with
from _accuracy_left_out import read_left_out
from shardwise.measured.validate.interpret import MeasuredCase, UnsupportedRow, measured_case
from shardwise.measured.validate.networks import NetworkSpread
from shardwise.measured.validate.predict import Prediction, network_spreads, predict_cases
from shardwise.measured.validate.score import scored
from shardwise.measured.validate.table import MeasuredRow, read_table
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.software import UNNAMED, Stack, stack_names, stack_of
from shardwise.spec.software.stack import covers
from shardwise.step.estimate.band import TABLE, end_of

HERE = Path(__file__).resolve().parents[1]
TRUTH = HERE.parent / "shared" / "truth"
SHIPPED = HERE / "src" / "shardwise" / "catalog" / "measured" / "published.csv"
BESIDE = ("steps.csv", "steps_small.csv", "steps_more.csv", "steps_third.csv")
FOUND = tuple(
    f"found_{name}.csv" for name in ("later", "since", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
)

LONG = 32_768
SMALL_PARAMS, NODE = 3e9, 8
MANY = 512
"""GPUs of 64 nodes"""
TUNING = re.compile(
    r"fine-?tun|\b(q?lora|sft|dpo|grpo|trl|axolotl|llama-?factory|ms-swift|swift|unsloth|peft)\b", re.IGNORECASE
)
CONSUMER = re.compile(r"rtx|geforce|titan|\b[345]090\b", re.IGNORECASE)


@dataclass(frozen=True)
class Run:
    """A measured run and what would be predicted of it had nobody measured its source."""

    case: MeasuredCase
    prediction: Prediction
    error: float
    """predicted over measured step, less 1"""
    low: float
    """ends of the 80 % band, measured over predicted step, less 1"""
    high: float

    @property
    def source(self) -> str:
        return self.case.measured.word("source")

    @property
    def inside(self) -> bool:
        return self.low <= 1 / (1 + self.error) - 1 <= self.high

    @property
    def width(self) -> float:
        return (1 + self.high) / (1 + self.low)


def paths() -> list[Path]:
    beside = [TRUTH / name for name in BESIDE if (TRUTH / name).is_file()] or [SHIPPED]
    return [*beside, *(HERE / "evidence" / "accuracy" / name for name in FOUND)]


def complete() -> bool:
    """Whether every table is at hand: some may not ship."""
    return all((TRUTH / name).is_file() for name in BESIDE)


def every_run() -> list[Run]:
    """Scored runs of all tables, each once."""
    found: dict[object, MeasuredRow] = {}
    for row in (row for path in paths() for row in read_table(path)):
        found.setdefault(
            tuple(sorted(cell for cell in row.text.items() if cell[1] and "predicted" not in cell[0])), row
        )
    # numbered through: row numbers of two tables would collide
    return list(runs_of(MeasuredRow(row=number, text=row.text) for number, row in enumerate(found.values())))


def runs_of(rows: Iterable[MeasuredRow]) -> Iterator[Run]:
    cases: dict[int, MeasuredCase] = {}
    back: dict[int, frozenset[str]] = {}
    for row in rows:
        try:
            cases[row.row], back[row.row] = unseen(measured_case(row))
        except UnsupportedRow:
            continue
    found = {p.measured.row: p for p in predict_cases(cases.values())}
    spreads = network_spreads(list(cases.values()), found)
    for number, prediction in found.items():
        if prediction.error is not None and prediction.band is not None and scored(prediction):
            missing = back[number] | set(prediction.band.missing)
            yield _run(cases[number], prediction, missing, spreads.get(number, NetworkSpread()))


def _run(case: MeasuredCase, prediction: Prediction, missing: Iterable[str], spread: NetworkSpread) -> Run:
    low, high = (end_of(_bands()[side], missing) for side in ("low", "high"))
    ends = expm1(-hypot(low, spread.low)), expm1(hypot(high, spread.high))
    return Run(case, prediction, prediction.error or 0.0, *ends)


@cache
def _bands() -> dict[str, dict[str, float]]:
    return loads(TABLE.read_text(encoding="utf-8"))


def unseen(case: MeasuredCase) -> tuple[MeasuredCase, frozenset[str]]:
    """Without what was fitted on its source, and what of a band's supports goes with that."""
    source, stack = case.measured.word("source"), fitted_as(case.stack.name)
    if stack is None or not stack.fitted_to(source):
        return case, frozenset()
    name = next(name for name in stack.fitted_sources if covers(name, source))
    others = read_left_out().get(f"without {name}", {}).get(stack.name)
    if others is not None:
        return replace(case, stack=_changed(case.stack, stack, others)), frozenset()
    like = stack_of(stack.like or UNNAMED)
    settings = {setting: like.setting(setting) for setting in stack.fitted}
    return replace(case, stack=_changed(case.stack, stack, settings)), frozenset(
        {"alike", "unseen" if stack.like else "unknown"}
    )


def _changed(own: Stack, fitted: Stack, settings: dict[str, Any]) -> Stack:
    """A stack that is like a fitted one keeps what it states itself."""
    return own.changed(**{name: v for name, v in settings.items() if own.setting(name) == fitted.setting(name)})


@cache
def fitted_as(name: str) -> Stack | None:
    """The stack whose fitted constants one takes."""
    fitted = (stack for stack in map(stack_of, stack_names()) if stack.fitted)
    return next((s for s in fitted if ONE_GPU not in s.fitted_sources and fitted_with(stack_of(name), s)), None)


def has_experts(run: Run) -> bool:
    return any(layer.experts for layer in run.case.model.kinds)


def _text(run: Run) -> str:
    return " ".join(run.case.measured.word(column) for column in ("source", "source_ref", "model", "software", "notes"))


CLASSES: dict[str, Callable[[Run], bool]] = {
    "dense": lambda run: not has_experts(run),
    "experts": has_experts,
    "fp8 and fp4": lambda run: any(word in run.case.measured.word("dtype") for word in ("fp8", "fp4")),
    "long context": lambda run: run.case.job.seq >= LONG,
    "small, one node": lambda run: run.case.cluster.gpus <= NODE and parameters(run.case.model) <= SMALL_PARAMS,
    "fine-tuning": lambda run: TUNING.search(_text(run)) is not None,
    "over 64 nodes": lambda run: run.case.cluster.gpus > MANY,
    "consumer cards": lambda run: CONSUMER.search(run.case.measured.word("gpu")) is not None,
    "all": lambda _: True,
}
