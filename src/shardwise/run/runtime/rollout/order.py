"""What a run of reinforcement learning does beside its training: who rolls out, how many answers, what they earn."""

from typing import TYPE_CHECKING

from msgspec import Struct

from shardwise.plugins.schedules import schedules
from shardwise.run.runtime.rollout.rewards import DIGITS, REWARDS
from shardwise.run.runtime.train.limits import one_of, require

if TYPE_CHECKING:
    from shardwise.run.runtime.train.task import Task, TrainingSettings

ALGORITHMS = ("grpo", "rloo")
"""what is run; `posttrain` prices more"""
END = 0
"""the token that ends an answer"""


class RolloutOrder(Struct, frozen=True, kw_only=True):
    algorithm: str = "grpo"
    ranks: int = 0
    """that only roll out, besides those that train; 0: these do both in turn"""
    tp: int = 1
    """ranks of an engine"""
    group: int = 8
    """answers to each prompt"""
    prompt_tokens: int = 8
    lag: int = 0
    """steps that answers are older than the weights they train"""
    reward: str = DIGITS
    clip: float = 0.2
    """how far the ratio of probabilities may leave 1"""

    def __post_init__(self) -> None:
        one_of("algorithm", self.algorithm, ALGORITHMS)
        one_of("reward", self.reward, tuple(REWARDS))
        require((
            ("rollout-ranks", self.ranks, self.ranks >= 0, "0 (the trainer's ranks roll out) or more"),
            ("engine-tp", self.tp, self.tp >= 1, "ranks of an engine, 1 or more"),
            ("group", self.group, self.group >= 2, "2 answers to a prompt or more"),
            ("prompt-tokens", self.prompt_tokens, self.prompt_tokens >= 1, "a whole number of 1 or more"),
            ("lag", self.lag, 0 <= self.lag <= 64, "0 (on-policy) to 64 steps"),
            ("ratio-clip", self.clip, 0 < self.clip < 1, "a share between 0 and 1, such as 0.2"),
        ))  # fmt: skip
        if self.lag and not self.ranks:
            raise ValueError(f"lag: {self.lag} needs ranks that roll out meanwhile; write --rollout-ranks 2")


def refuse_unlike(order: RolloutOrder, task: "Task", settings: "TrainingSettings") -> None:
    """What post-training does not do, or does not do right."""
    policy, precision = task.policy, task.job.precision.name
    if task.model.inputs != "tokens":
        raise ValueError(f"model: {task.model.name} reads {task.model.inputs}, and answers are texts; write a decoder")
    if schedules()[policy.schedule].both_ends:
        raise ValueError(f"schedule: {policy.schedule} holds the model twice, which post-training cannot; write 1f1b")
    if task.job.tuning is not None:
        raise ValueError("tune: post-training sends whole models to its engines; write --tune full, no --freeze")
    if policy.sync:
        raise ValueError(f"sync: {policy.sync} gives every worker weights of its own; leave it out")
    if precision.startswith("fsdp-mixed"):
        raise ValueError(f"precision: {precision} rounds the weights of tokens to 16 bits; write fp32, or --zero 2")
    if task.capacity:
        raise ValueError(f"capacity: {task.capacity:g} drops tokens that the engine does not; write --capacity 0")
    if settings.eval_every:
        raise ValueError(f"eval-every: {settings.eval_every}, but every step tells its reward; leave it out")
    if policy.zero == 3 and not order.ranks and any(kind.experts for kind in task.model.kinds):
        raise ValueError("zero: 3 with experts whose ranks also roll out is not predicted; write --zero 2")
    replicas_of(order, task)


def replicas_of(order: RolloutOrder, task: "Task") -> int:
    """Engines; each has as many whole groups. What cannot be dealt out is refused."""
    rolling = order.ranks or task.policy.gpus
    if rolling % order.tp:
        raise ValueError(f"engine-tp: {order.tp} does not divide the {rolling} ranks that roll out; write a divisor")
    if task.job.global_batch % order.group:
        raise ValueError(
            f"global-batch: {task.job.global_batch} answers are no whole groups of {order.group}; write a multiple"
        )
    replicas, prompts = rolling // order.tp, task.job.global_batch // order.group
    if prompts % replicas:
        raise ValueError(f"engine-tp: {replicas} engines cannot share {prompts} prompts evenly; write another degree")
    if order.prompt_tokens >= task.job.seq:
        raise ValueError(
            f"prompt-tokens: {order.prompt_tokens} leave nothing of seq {task.job.seq} for an answer; write fewer"
        )
    return replicas
