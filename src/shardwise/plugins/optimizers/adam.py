"""Adam: AdamW whose decay goes through the gradient and its moments (Kingma and Ba, arXiv:1412.6980)."""

from typing import ClassVar

from shardwise.plugins.optimizers.adamw import AdamW


class Adam(AdamW):
    name: ClassVar[str] = "adam"
    summary: ClassVar[str] = "two moments, decay in the gradient"
    spelled: ClassVar[dict[str, str]] = {"megatron": "adam", "deepspeed": "Adam", "torchtitan": "Adam"}
    decoupled: ClassVar[bool] = False


OPTIMIZER = Adam()
