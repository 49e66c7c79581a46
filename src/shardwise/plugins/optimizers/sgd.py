"""SGD without momentum: no state."""

from typing import TYPE_CHECKING, Any, ClassVar

from shardwise.plugins.optimizers._contract import RunSettings, UpdateRule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


class SGD(UpdateRule):
    name: ClassVar[str] = "sgd"
    summary: ClassVar[str] = "the gradient alone"
    steps_like: ClassVar[tuple[str, ...]] = ("sgd", "sgd-m")
    spelled: ClassVar[dict[str, str]] = {"maxtext": "sgd", "nanotron": "sgd"}

    def make(self, tensors: "list[Tensor]", settings: RunSettings, **options: Any) -> "Optimizer":
        import torch

        momentum = settings.momentum if self.moments else 0.0
        return torch.optim.SGD(tensors, lr=0.0, momentum=momentum, nesterov=settings.nesterov, **options)


OPTIMIZER = SGD()
