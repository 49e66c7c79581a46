"""Lion: the sign of a running mean of gradients, so one moment (Chen et al., arXiv:2302.06675)."""

from typing import ClassVar

from shardwise.plugins.optimizers._contract import UpdateRule


class Lion(UpdateRule):
    name: ClassVar[str] = "lion"
    summary: ClassVar[str] = "the sign of one moment"
    moments: ClassVar[float] = 1.0
    spelled: ClassVar[dict[str, str]] = {"deepspeed": "Lion"}
    refused: ClassVar[str] = "torch has no Lion; write --optimizer adamw"


OPTIMIZER = Lion()
