"""Measured rows of every table at hand, their cases, and predictions with any setting of a stack replaced."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from shardwise.arrays import Floats
from shardwise.measured.validate.interpret import MeasuredCase, UnsupportedRow, measured_case
from shardwise.measured.validate.predict import Prediction, predict, predict_cases
from shardwise.measured.validate.score import scored
from shardwise.measured.validate.table import MeasuredRow, read_table
from shardwise.spec.software import Stack, stack_names, stack_of

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "src" / "shardwise" / "catalog" / "measured" / "published.csv"
TRUTH = ROOT.parent / "shared" / "truth"
TABLES = ("steps.csv", "steps_small.csv")
GROUP = ("source", "model", "gpu", "gpus")
ONE_GPU = "h200_steps"
FEWEST_GROUPS = 3


def has_truth() -> bool:
    return (TRUTH / TABLES[0]).is_file()


def tables() -> list[Path]:
    """The large tables where they lie beside the repository, else the one that ships."""
    return [TRUTH / name for name in TABLES if (TRUTH / name).is_file()] if has_truth() else [SHIPPED]


@cache
def measured_rows() -> tuple[MeasuredRow, ...]:
    """Rows of all tables, numbered through: row numbers of two tables would collide."""
    rows = [row for path in tables() for row in read_table(path)]
    return tuple(msgspec.structs.replace(row, row=number) for number, row in enumerate(rows))


@cache
def predictions() -> tuple[Prediction, ...]:
    """Every row with the constants the catalog holds now."""
    return tuple(predict(list(measured_rows())))


def group_of(row: MeasuredRow) -> tuple[str, ...]:
    """What must not lie on both sides of a split: one model on one cluster of one source."""
    return tuple(row.word(column) for column in GROUP)


def fitted_with(other: Stack, stack: Stack) -> bool:
    """Whether rows of `other` tell about the fitted settings of `stack`: those it does not change it has from there."""
    return other.name == stack.name or (
        bool(other.like) and not other.fitted and fitted_with(stack_of(other.like), stack)
    )


def fitted_stacks() -> list[Stack]:
    """Stacks with settings fitted on rows of the tables (one-GPU steps are too few to hold any out), or whose runs were
    found to need none of their own."""
    found = [stack_of(name) for name in stack_names()]
    return [
        s for s in found if s.fitted_on and ONE_GPU not in s.fitted_sources and len(rows_of(s).groups) >= FEWEST_GROUPS
    ]


@dataclass(frozen=True)
class Rows:
    """Cases of one stack that count in scores, with their measured speed and memory."""

    stack: Stack
    cases: tuple[MeasuredCase, ...]

    @property
    def groups(self) -> set[tuple[str, ...]]:
        return {group_of(case.measured) for case in self.cases}

    def take(self, chosen: Iterable[bool]) -> "Rows":
        return Rows(self.stack, tuple(c for c, keep in zip(self.cases, chosen, strict=True) if keep))

    def teaching(self) -> "Rows":
        """Those that settings are fitted on: a model with several residual streams is predicted and teaches nothing,
        since its own kernels and recipes are new (docs/decisions/0023)."""
        return self.take(case.model.streams == 1 for case in self.cases)

    def with_memory(self) -> "Rows":
        return self.take(bool(case.measured.number("peak_mem_gb")) for case in self.cases)

    def predict(self, settings: dict[str, float]) -> list[Prediction]:
        stacks = {case.stack.name: case.stack for case in self.cases}
        tried = {name: self.with_settings(stack, settings) for name, stack in stacks.items()}
        found = predict_cases(replace(case, stack=tried[case.stack.name]) for case in self.cases)
        by_row = {prediction.measured.row: prediction for prediction in found}
        return [by_row[case.measured.row] for case in self.cases]

    def with_settings(self, other: Stack, settings: dict[str, float]) -> Stack:
        """A stack that is like this one keeps what it changes."""
        shared = {name: v for name, v in settings.items() if other.setting(name) == self.stack.setting(name)}
        return other.changed(**shared)


def time_errors(found: Iterable[Prediction]) -> Floats:
    return np.array([p.error for p in found if p.error is not None])


def memory_errors(found: Iterable[Prediction]) -> Floats:
    pairs = ((p.peak_bytes, p.measured.number("peak_mem_gb")) for p in found)
    return np.array([peak / 2**30 / truth - 1 for peak, truth in pairs if peak and truth])


@cache
def rows_of(stack: Stack) -> Rows:
    """The scored rows of a stack's `fitted_on` sources whose software means this stack, or one like it that is not
    fitted itself."""
    wanted = {p.measured.row for p in predictions() if p.error is not None and scored(p)}
    cases = []
    for row in measured_rows():
        if row.row in wanted and stack.fitted_to(row.word("source")):
            try:
                case = measured_case(row)
            except UnsupportedRow:
                continue
            if fitted_with(case.stack, stack):
                cases.append(case)
    return Rows(stack, tuple(cases))
