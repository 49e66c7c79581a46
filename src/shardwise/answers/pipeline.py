"""`calc pipeline`: a pipeline in whole time steps, before anything has a duration: who works when."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Struct

from shardwise.answers.answer import Answer, Bars, FactList, Figure, Part, shown, table
from shardwise.report.charts.time_steps import time_steps

MOST_SLOTS = 4096
"""stages times micro-batches that are followed"""
ORDERS = ("textbook", "gpipe", "1f1b")


class PipelineSlot(Struct, frozen=True, kw_only=True):
    """One time step."""

    step: Annotated[str, shown("step")]
    tasks: Sequence[str]
    """of each stage: F2 is the forward of micro-batch 2, B1 a backward, '' nothing"""
    shown_tasks: Annotated[str, shown("stage by stage")]
    working: Annotated[int, shown("stages at work")]
    share: Annotated[float, shown("at work", "percent")]


class PipelineAnswer(Answer, frozen=True, kw_only=True):
    stages: int
    micro_batches: int
    order: str
    slots: Sequence[PipelineSlot]
    mean_share: float
    """of the stages at work, over all steps"""
    idle_of_busy: float
    """(N - 1) / m: what a schedule of forwards and backwards in turn waits, of the time a stage works"""
    idle_of_step: float
    """(N - 1) / (m + N - 1): the same, of the whole step"""

    def parts(self) -> Iterator[Part]:
        title = f"{self.stages} stages, {self.micro_batches} micro-batches, {self.order}"
        steps = [(slot.step, slot.tasks, slot.share) for slot in self.slots]
        yield Figure(lambda: time_steps(steps, self.stages), [table(title, self.slots, words=2, bars=("at work",))])
        yield Bars(
            "stages at work, step by step", {each.step: (each.share, f"{each.share:.0%}") for each in self.slots}
        )
        yield FactList("", [
            ("at work on average", f"{self.mean_share:.1%}"),
            ("idle, (N - 1) / m", f"{self.idle_of_busy:.4g} of the busy time"),
            ("(N - 1) / (m + N - 1)", f"{self.idle_of_step:.2%} of the whole step"),
        ])  # fmt: skip


ANSWERS = (PipelineAnswer,)


def pipeline_answer(stages: int, micro_batches: int, order: str) -> PipelineAnswer:
    """`textbook`: a stage may do one forward and one backward in the same step; the others do one task at a time, a
    backward in two steps."""
    if order not in ORDERS:
        raise ValueError(f"order: {order[:40]!r} is unknown; write one of {', '.join(ORDERS)}")
    if stages * micro_batches > MOST_SLOTS:
        raise ValueError(f"micro: {micro_batches:,} micro-batches of {stages} stages are too many to follow; write at "
                         f"most {MOST_SLOTS // stages:,}")  # fmt: skip
    grid = _textbook(stages, micro_batches) if order == "textbook" else _in_turn(stages, micro_batches, order)
    slots = [
        PipelineSlot(step=f"t{at + 1}", tasks=tasks, working=sum(map(bool, tasks)),
                     share=sum(map(bool, tasks)) / stages,
                     shown_tasks=" | ".join(f"{task:5}" for task in tasks).rstrip())
        for at, tasks in enumerate(zip(*grid, strict=True))
    ]  # fmt: skip
    return PipelineAnswer(
        stages=stages, micro_batches=micro_batches, order=order, slots=slots,
        mean_share=sum(slot.share for slot in slots) / len(slots), idle_of_busy=(stages - 1) / micro_batches,
        idle_of_step=(stages - 1) / (micro_batches + stages - 1),
    )  # fmt: skip


def _textbook(stages: int, micro_batches: int) -> list[list[str]]:
    """Micro-batch j reaches stage i in step i + j; its backward leaves the last stage in the step it arrives there."""
    steps = 2 * (stages - 1) + micro_batches
    grid = [[""] * steps for _ in range(stages)]
    for stage in range(stages):
        for batch in range(micro_batches):
            for task, at in (("F", stage + batch), ("B", 2 * (stages - 1) - stage + batch)):
                grid[stage][at] = f"{grid[stage][at]} {task}{batch + 1}".strip()
    return grid


def _in_turn(stages: int, micro_batches: int, order: str) -> list[list[str]]:
    """Each task as soon as its stage is free and what it needs is there."""
    queues = [_queue(stage, stages, micro_batches, order) for stage in range(stages)]
    ends: dict[tuple[str, int, int], int] = {}
    free = [0] * stages
    while any(queues):
        for stage, queue in enumerate(queues):
            while queue and (ready := _ready(queue[0], stage, stages, ends)) is not None:
                task, batch = queue.pop(0)
                free[stage] = max(free[stage], ready) + (1 if task == "F" else 2)
                ends[task, batch, stage] = free[stage]
    grid = [[""] * max(free) for _ in range(stages)]
    for (task, batch, stage), end in ends.items():
        for at in range(end - (1 if task == "F" else 2), end):
            grid[stage][at] = f"{task}{batch + 1}"
    return grid


def _queue(stage: int, stages: int, micro_batches: int, order: str) -> list[tuple[str, int]]:
    forwards, backwards = ([(task, batch) for batch in range(micro_batches)] for task in "FB")
    if order == "gpipe":
        return [*forwards, *reversed(backwards)]
    ahead = min(stages - stage, micro_batches)
    pairs = [each for pair in zip(backwards, forwards[ahead:], strict=False) for each in pair]
    return [*forwards[:ahead], *pairs, *backwards[max(micro_batches - ahead, 0) :]]


def _ready(task: tuple[str, int], stage: int, stages: int, ends: dict[tuple[str, int, int], int]) -> int | None:
    kind, batch = task
    if kind == "F":
        return 0 if stage == 0 else ends.get(("F", batch, stage - 1))
    return ends.get(("F", batch, stage) if stage == stages - 1 else ("B", batch, stage + 1))
