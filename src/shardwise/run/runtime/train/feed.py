"""A rank's share of each batch: its samples by data-parallel rank, its places in them by context-parallel rank."""

from torch import Tensor

from shardwise.run.runtime.data.digits import examples_of
from shardwise.run.runtime.data.source import Source
from shardwise.run.runtime.data.texts import tokens_of
from shardwise.run.runtime.data.windows import Windows
from shardwise.run.runtime.moved import moved
from shardwise.run.runtime.parallel.pipeline import Batch
from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.run.runtime.train.task import TrainingOrder


def trained_on(order: TrainingOrder) -> Source:
    """All of the data, or what is left when a part is held out for evaluation."""
    settings = order.settings
    held_out = settings.eval_every > 0 and not settings.eval_data
    return _source(order, settings.data, "trained" if held_out else "all", "data")


def evaluated_on(order: TrainingOrder) -> Source:
    if order.settings.eval_data:
        return _source(order, order.settings.eval_data, "all", "eval-data")
    return _source(order, order.settings.data, "held out", "data")


def _source(order: TrainingOrder, data: tuple[str, ...], part: str, field: str) -> Source:
    task, settings = order.task, order.settings
    if task.model.inputs == "features":
        return examples_of(task.model, data, task.seed, part=part, field=field)
    tokens = tokens_of(data, settings.tokenizer, settings.token_cache, task.model.vocab, field)
    name = ", ".join(data) or "the built-in corpus"
    seq = task.job.seq if order.rollout is None else order.rollout.prompt_tokens
    return Windows(tokens, seq, task.seed, name=name, part=part, field=field)


def batch_of(engine: TrainingEngine, source: Source, step: int) -> Batch:
    """The micro-batches of a step; sample numbers follow from the step alone, so any step can be resumed at."""
    task, at, device = engine.task, engine.context.positions, engine.world.device
    share = task.job.global_batch // task.policy.dp
    first = step * task.job.global_batch + engine.world.data_index * share

    def micro_batch(index: int) -> tuple[Tensor, Tensor]:
        inputs, targets = source.batch(first + index * task.policy.micro_batch, task.policy.micro_batch)
        return moved(inputs, device)[at], moved(targets, device)[at]

    return micro_batch
