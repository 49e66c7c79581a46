"""SGD with momentum, Nesterov's too: one moment."""

from typing import ClassVar

from shardwise.plugins.optimizers._contract import RunSettings
from shardwise.plugins.optimizers.sgd import SGD


class SGDM(SGD):
    name: ClassVar[str] = "sgd-m"
    summary: ClassVar[str] = "a running mean of gradients"
    moments: ClassVar[float] = 1.0
    kept: ClassVar[tuple[str, ...]] = ("momentum_buffer",)
    spelled: ClassVar[dict[str, str]] = {"megatron": "sgd", "deepspeed": "SGD"}

    def looks_ahead(self, settings: RunSettings) -> bool:
        return settings.momentum > 0


OPTIMIZER = SGDM()
