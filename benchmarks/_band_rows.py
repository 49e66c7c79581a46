"""Measured over predicted steps for the bands: every run by constants that had not seen its source, then again with one
support after the other taken away, as it would be predicted had nobody measured that.

What is taken away: runs under the program's name (its fitted constants go back to those of the stack it is like, as if
none had ever been compared; a program like no other is then as good as unknown, and counts as such), the program (taken
as the one unknown software is taken as), the GPU's kernel rates (those every unmeasured GPU takes), runs of that size
(constants fitted on small ones), expert models (what was fitted or set on them goes back to the default).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from math import log, log1p

import msgspec

from _accuracy_csv import FOLDER
from _accuracy_data import (
    ONE_GPU,
    TRUTH,
    fitted_stacks,
    fitted_with,
    measured_rows,
    rows_of,
)
from _accuracy_fit import default_of
from _accuracy_left_out import read_left_out, small
from shardwise.cost.curve import curve_of
from shardwise.measured.validate.interpret import MeasuredCase, UnsupportedRow, measured_case, stated_stack
from shardwise.measured.validate.networks import NetworkSpread
from shardwise.measured.validate.one_gpu import GPU, one_gpu_case
from shardwise.measured.validate.predict import network_spreads, predict_cases
from shardwise.measured.validate.score import scored
from shardwise.measured.validate.table import MeasuredRow, read_table
from shardwise.spec.cluster import Cluster
from shardwise.spec.software import PARTS, UNNAMED, Match, Stack, named, part_of, stack_names, stack_of
from shardwise.spec.software.stack import covers
from shardwise.step.estimate.band import Fitted, FittedRuns, lacking, untuned_share

STEPS = ("name", "step_ms")
MORE = ("steps_more.csv",)
"""sources that took part in no fit; how their programs work was read when their errors had been seen"""
FOUND = ("found_later.csv", "found_since.csv", "found_third.csv", "found_fourth.csv", "found_fifth.csv")
"""sources found when everything was fitted, with what was predicted then (`predicted_step_s`, of which the share
`predicted_added` was added for a program that was compared and not fitted)"""
TOGETHER = (
    "MaxText",
    "torchao",
    "YaFSDP",
    "FlagPerf",
    "JAX-Toolbox",
    "LiBai",
    "BMTrain",
    "OpenEuroLLM",
    "Megatron-Kwai",
)
"""what names of sources begin with that one publisher measured"""
TUNED = "megatron-core"
STATED = NetworkSpread()


@dataclass(frozen=True)
class Residual:
    source: str
    publisher: str
    surplus: float
    """logarithm of measured over predicted step time, before anything is added for what was not fitted"""
    missing: frozenset[str]
    taken_away: str = ""
    """empty: the run as it is"""
    table: str = ""
    """empty: one that constants were fitted on"""
    network: NetworkSpread = STATED
    """what a network that the row does not state may make of the step; no band has to hold that as well"""

    @property
    def teaches(self) -> bool:
        """Tables that were found later teach what they are the test of: programs of which no run was compared, and
        fitted ones that others measured."""
        return self.table not in FOUND or bool({"unseen", "unknown", "site"} & self.missing)


@cache
def fitted_table() -> Fitted:
    """What the constants of every stack were fitted on."""
    found = {}
    for stack in fitted_stacks():
        cases = rows_of(stack).cases
        found[stack.name] = FittedRuns(
            runs=len(cases),
            gpus=max(case.cluster.gpus for case in cases),
            on=tuple(sorted({case.cluster.gpu.name for case in cases})),
            experts=any(_has_experts(case) for case in cases),
            named=tuple(sorted({named(stated_stack(case.measured)).piece for case in cases})),
        )
    return found | _one_gpu()


def _one_gpu() -> Fitted:
    """Steps measured on one GPU, of the stacks that their constants were fitted on."""
    found = {}
    for stack in (s for name in stack_names() if ONE_GPU in (s := stack_of(name)).fitted_sources):
        tables = [path for path in FOLDER.glob("h200_*_measured.csv") if path.stem in stack.fitted_sources]
        cases = [one_gpu_case(row, "auto", None)[0] for path in sorted(tables) for row in read_table(path, STEPS)]
        mine = [case for case in cases if case.stack.name == stack.name]
        experts = any(layer.experts for case in mine for layer in case.model.kinds)
        found[stack.name] = FittedRuns(len(mine), 1, (GPU,), experts)
    return found


@cache
def compared_names() -> frozenset[str]:
    """Pieces of the `software` texts of all runs in the tables beside the repository."""
    rows = [*measured_rows(), *(row for name in MORE for row in _beside(name))]
    return frozenset(named(stated_stack(row)).piece for row in rows) - {""}


@cache
def taught_rows() -> tuple[Residual, ...]:
    """Of every table."""
    return (*fitted_rows(), *more_rows(), *found_rows())


@cache
def fitted_rows() -> tuple[Residual, ...]:
    """Of the tables that constants were fitted on."""
    cases = cases_of(measured_rows())
    seen = {case.measured.row for stack in fitted_stacks() for case in rows_of(stack).cases}
    found = _without_their_sources()
    found += _residuals([case for case in cases if case.measured.row not in seen])
    taught = [case for case in cases if case.measured.row in seen]
    found += _residuals(_changed(taught, without_its_source), "alike")
    found += _residuals(_changed(cases, _unknown_program), "unknown")
    found += _residuals(_changed(cases, _unknown_chip), "chip")
    found += _residuals(_changed([case for case in taught if _has_experts(case)], _unknown_experts), "experts")
    return tuple(found + _large_by_small())


def _beside(name: str) -> list[MeasuredRow]:
    return read_table(TRUTH / name) if (TRUTH / name).is_file() else []


@cache
def more_rows() -> tuple[Residual, ...]:
    """Of the tables that nothing was fitted on; empty where they are not beside the repository."""
    return tuple(replace(row, table=name) for name in MORE for row in _residuals(cases_of(_beside(name))))


@cache
def found_rows() -> tuple[Residual, ...]:
    """As they were predicted when they were found."""
    found = []
    for table in FOUND:
        cases = cases_of(read_table(FOLDER / table))
        spreads = _spreads(cases)
        for case in cases:
            step, predicted = case.measured.number("step_seconds"), case.measured.number("predicted_step_s")
            if step and predicted:
                source, added = case.measured.word("source"), case.measured.number("predicted_added") or 0.0
                surplus, missing = log(step / predicted) + log1p(added), _missing(case, "")
                spread = spreads.get(case.measured.row, STATED)
                found.append(Residual(source, publisher_of(source), surplus, missing, table=table, network=spread))
    return tuple(found)


def cases_of(rows: Iterable[MeasuredRow]) -> list[MeasuredCase]:
    found = []
    for row in rows:
        try:
            found.append(measured_case(row))
        except UnsupportedRow:
            continue
    return found


def _spreads(cases: list[MeasuredCase]) -> dict[int, NetworkSpread]:
    return network_spreads(cases, {prediction.measured.row: prediction for prediction in predict_cases(cases)})


def _residuals(cases: list[MeasuredCase], taken_away: str = "") -> list[Residual]:
    by_row = {case.measured.row: case for case in cases}
    spreads = _spreads(cases)
    found = []
    for prediction in predict_cases(cases):
        if prediction.error is not None and scored(prediction):
            case = by_row[prediction.measured.row]
            source = case.measured.word("source")
            surplus = log1p(untuned_share(case.stack)) - log(1 + prediction.error)
            spread, missing = spreads.get(case.measured.row, STATED), _missing(case, taken_away)
            found.append(Residual(source, publisher_of(source), surplus, missing, taken_away, network=spread))
    return found


def _missing(case: MeasuredCase, taken_away: str) -> frozenset[str]:
    software = named(stated_stack(case.measured))
    if taken_away == "unknown":
        software = Match(stack_of(UNNAMED), "", software.text)
    found = lacking(
        software, curve_of(case.cluster.gpu), fitted_table(), compared_names(), gpus=case.cluster.gpus,
        experts=_has_experts(case), source=case.measured.word("source"),
        free_router=case.stack.experts.free_router,
    )  # fmt: skip
    fitted = _fitted_stack(case.stack.name)
    if taken_away == "alike" and fitted is not None:
        return frozenset(found) | {"alike", "unseen" if fitted.like else "unknown"}
    return frozenset(found) | ({taken_away} if taken_away else set())


def _has_experts(case: MeasuredCase) -> bool:
    return any(layer.experts for layer in case.model.kinds)


@cache
def publisher_of(source: str) -> str:
    """What is left out together: tables that a fit takes under one name, and those one publisher measured."""
    for begun in TOGETHER:
        if source.startswith(begun):
            return begun
    names = (name for stack in fitted_stacks() for name in stack.fitted_sources if covers(name, source))
    return next(names, source)


def _changed(
    cases: Iterable[MeasuredCase], change: Callable[[MeasuredCase], MeasuredCase | None]
) -> list[MeasuredCase]:
    return [found for case in cases if (found := change(case)) is not None]


@cache
def _fitted_stack(name: str) -> Stack | None:
    """Where the fitted constants of a stack come from."""
    return next((other for other in fitted_stacks() if fitted_with(stack_of(name), other)), None)


def without_its_source(case: MeasuredCase) -> MeasuredCase | None:
    """None for a stack fitted on several sources: it is fitted again without this one."""
    fitted = _fitted_stack(case.stack.name)
    if fitted is None or len(fitted.fitted_sources) > 1:
        return None
    like = stack_of(fitted.like or UNNAMED)
    back = {n: like.setting(n) for n in fitted.fitted if case.stack.setting(n) == fitted.setting(n)}
    return replace(case, stack=case.stack.changed(**back))


def _unknown_program(case: MeasuredCase) -> MeasuredCase | None:
    """As `validate` would take it. None for Megatron-Core and what is like it: a vendor's program, tuned on the runs
    that are published, is known by its name, and says little of those that are not."""
    stack = case.stack
    while stack.like:
        stack = stack_of(stack.like)
    return None if stack.name == TUNED else measured_case(case.measured, UNNAMED)


def _unknown_chip(case: MeasuredCase) -> MeasuredCase | None:
    """None where the GPU has no rates of its own, or is the one whose rates the others take."""
    gpu = case.cluster.gpu
    if curve_of(gpu).measured != gpu.name or curve_of(_renamed(case.cluster).gpu).measured == gpu.name:
        return None
    return replace(case, cluster=_renamed(case.cluster))


_RENAMED: dict[int, tuple[Cluster, Cluster]] = {}
"""one object for each cluster: predictions are batched by it"""


def _renamed(cluster: Cluster) -> Cluster:
    """With a GPU that the catalog has no file of."""
    gpu = msgspec.structs.replace(cluster.gpu, name=f"{cluster.gpu.name} unmeasured")
    return _RENAMED.setdefault(id(cluster), (cluster, msgspec.structs.replace(cluster, gpu=gpu)))[1]


def _unknown_experts(case: MeasuredCase) -> MeasuredCase:
    stack = case.stack
    chosen = [
        name
        for name in PARTS["experts"].__struct_fields__
        if stack.origin(name).kind in ("fitted", "set") and part_of(name) == "experts"
    ]
    return replace(case, stack=stack.changed(**{name: default_of(name) for name in chosen}))


def _without_their_sources() -> list[Residual]:
    """Rows that teach: by constants fitted without their source where others remain, else by the shipped ones."""
    found = []
    for stack in fitted_stacks():
        rows = rows_of(stack)
        for source in stack.fitted_sources:
            part = rows.take(covers(source, case.measured.word("source")) for case in rows.cases)
            settings = read_left_out().get(f"without {source}", {}).get(stack.name, {})
            found += _residuals([replace(c, stack=rows.with_settings(c.stack, settings)) for c in part.cases])
    return found


def _large_by_small() -> list[Residual]:
    found = []
    for stack in fitted_stacks():
        settings = read_left_out().get("small", {}).get(stack.name)
        if settings is not None:
            rows = rows_of(stack)
            large = rows.take(not few for few in small(rows))
            cases = [replace(case, stack=rows.with_settings(case.stack, settings)) for case in large.cases]
            found += _residuals(cases, "scale")
    return found
