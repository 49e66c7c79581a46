"""What the measured rows know of each number that was fitted or set on them: rows, models and groups that it moves.

A number that moves nothing, or one model only, is not held by measurements: it is read, timed, a fact of the run, or
it goes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from _accuracy_data import ONE_GPU, ROOT, TRUTH, group_of, measured_rows
from shardwise.measured.validate.interpret import MeasuredCase, UnsupportedRow, measured_case
from shardwise.measured.validate.one_gpu import is_one_gpu, one_gpu_case
from shardwise.measured.validate.predict import predict_cases
from shardwise.measured.validate.table import header, read_table
from shardwise.spec.policy import Policies
from shardwise.spec.software import Stack, stack_names, stack_of
from shardwise.step.estimate.closed_form import estimate

MOVED = 1e-3
"""change of a step or a peak that counts as one"""
PLAIN = Stack(name="plain", summary="every setting at its default", source="", date="")
ON_ROWS = ("fitted", "set")

Row = tuple[str, tuple[str, ...], float, float]
"""model, group, seconds, bytes"""


@dataclass(frozen=True)
class Support:
    stack: str
    setting: str
    kind: str
    rows: int
    models: int
    groups: int
    """that the number moves, against what the stack would have without it: its parent's number, or the default"""
    sources: int


def numbers_on_rows(stack: Stack) -> list[str]:
    """Settings that its own file says were fitted or set on rows."""
    own = [name for name in stack.stated if stack.origin(name).stack == stack.name]
    return [name for name in own if stack.origin(name).kind in ON_ROWS]


def support_of(stack: Stack) -> list[Support]:
    return [_supported(stack, name) for name in numbers_on_rows(stack)]


def groups_of(stack: Stack) -> int:
    """Groups of rows that its numbers may come from."""
    return len({group for _, group, _, _ in _told(stack, {})})


def all_support() -> Iterator[tuple[Stack, list[Support]]]:
    for name in stack_names():
        if numbers_on_rows(stack_of(name)):
            yield stack_of(name), support_of(stack_of(name))


def _supported(stack: Stack, name: str) -> Support:
    without = stack_of(stack.like) if stack.like else PLAIN
    before, after = _told(stack, {}), _told(stack, {name: without.setting(name)})
    moved = [a for a, b in zip(before, after, strict=True)
             if abs(b[2] / a[2] - 1) > MOVED or abs(b[3] / a[3] - 1) > MOVED]  # fmt: skip
    return Support(stack.name, name, stack.origin(name).kind, len(moved), len({row[0] for row in moved}),
                   len({row[1] for row in moved}), len({row[1][0] for row in moved}))  # fmt: skip


def _told(stack: Stack, settings: dict[str, float]) -> list[Row]:
    if any(source.startswith(ONE_GPU.split("_")[0]) for source in stack.fitted_sources):
        return list(_one_gpu(stack, settings))
    found = predict_cases(
        replace(case, stack=case.stack.changed(**_shared(case.stack, stack, settings))) for case in _cases(stack)
    )
    ordered = sorted(found, key=lambda p: p.measured.row)
    return [(p.measured.word("model"), group_of(p.measured), p.step_s or 1.0, p.peak_bytes or 1.0) for p in ordered]


def _shared(other: Stack, stack: Stack, settings: dict[str, float]) -> dict[str, float]:
    """A stack that is like this one keeps what it changes."""
    return {name: value for name, value in settings.items() if other.setting(name) == stack.setting(name)}


@cache
def _cases(stack: Stack) -> tuple[MeasuredCase, ...]:
    return tuple(case for case in _every_case() if stack.name in _chain(case.stack))


@cache
def _every_case() -> tuple[MeasuredCase, ...]:
    found = []
    for row in measured_rows():
        try:
            found.append(measured_case(row))
        except UnsupportedRow:
            continue
    return tuple(found)


def _chain(stack: Stack) -> Iterable[str]:
    yield stack.name
    if stack.like:
        yield from _chain(stack_of(stack.like))


def _one_gpu(stack: Stack, settings: dict[str, float]) -> Iterator[Row]:
    """Steps of plain PyTorch: the published ones beside the repository, and its own."""
    files = [TRUTH / "h200_steps.csv", *sorted((ROOT / "evidence" / "accuracy").glob("h200_*_measured.csv"))]
    # traced programs, which state no shape, lie there too
    for path in (path for path in files if path.is_file() and is_one_gpu(header(path))):
        for row in read_table(path, ("name",)):
            case, policy = one_gpu_case(row)
            if case.stack.name == stack.name:
                told = estimate(case.changed(**settings), Policies.of([policy]), every_stage=True)
                group = (path.stem, row.word("name"))
                yield row.word("name"), group, float(told.times.step_s[0]), float(told.memory.peak[0])
