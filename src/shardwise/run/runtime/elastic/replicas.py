"""Parts of a run that hold everything: each of them can be lost and made again from another."""

from msgspec import Struct
from msgspec.structs import replace

from shardwise.run.runtime.train.task import TrainingOrder


class ReplicaSplit(Struct, frozen=True, kw_only=True):
    replicas: int
    order: TrainingOrder
    """of one replica, which takes its part of every batch"""

    @property
    def ranks(self) -> int:
        """Of one replica."""
        return self.order.task.policy.gpus


def split_of(order: TrainingOrder) -> ReplicaSplit:
    """ValueError where nothing in it can be lost alone."""
    settings, policy = order.settings, order.task.policy
    for field, given in (
        ("checkpoints", settings.checkpoints), ("eval-every", settings.eval_every), ("records", settings.records),
        ("sync", policy.sync),
    ):  # fmt: skip
        if given:
            raise ValueError(f"{field}: {given} cannot be run with --elastic; leave one of the two away")
    if settings.device != "cpu":
        raise ValueError(f"device: {settings.device} cannot be run with --elastic; write --device cpu")
    if policy.ep > 1:
        raise ValueError(f"ep: {policy.ep} spreads experts over the replicas of --elastic; write --ep 1")
    shard = (policy.shard_group or policy.dp * policy.cp) if policy.zero else policy.cp
    if shard % policy.cp or policy.dp * policy.cp % shard or policy.dp * policy.cp == shard:
        raise ValueError(
            f"elastic: dp {policy.dp}, zero {policy.zero} leaves no whole replica without a lost rank; write --zero 0, "
            "or --shard-group N with fewer ranks than data parallelism has"
        )
    data = shard // policy.cp
    count = policy.dp // data
    inside = replace(policy, dp=data, shard_group=0, zero=policy.zero if shard > 1 else 0)
    job = replace(order.task.job, global_batch=order.task.job.global_batch // count)
    return ReplicaSplit(replicas=count, order=replace(order, task=replace(order.task, policy=inside, job=job)))


def part_of_batch(split: ReplicaSplit, replica: int, step: int) -> int:
    """Number of a replica's part among those of all steps: the same samples whoever else takes part."""
    return step * split.replicas + replica
