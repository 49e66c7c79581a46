"""Prompts of a step, and an engine's answers to its share of them."""

from shardwise.run.runtime.data.source import Source
from shardwise.run.runtime.rollout.engine import AnsweringEngine, RolledAnswers


def rolled_out(engine: AnsweringEngine, source: Source, step: int) -> RolledAnswers:
    """Of the groups that this replica has in the step."""
    task, order, replica = engine.whole, engine.order, engine.world.dp.index
    rows = task.job.global_batch // engine.world.dp.size
    group, first = order.group, replica * rows
    prompts, _ = source.batch((step * task.job.global_batch + first) // group, rows // group)
    return engine.answer(prompts.t().repeat_interleave(group, dim=0), range(first, first + rows), step)
