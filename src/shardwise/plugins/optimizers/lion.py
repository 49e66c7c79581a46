"""Lion: the sign of a running mean of gradients, so one moment (Chen et al., arXiv:2302.06675)."""

from typing import TYPE_CHECKING, Any, ClassVar

from shardwise.plugins.optimizers._contract import RunSettings, UpdateRule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


class Lion(UpdateRule):
    name: ClassVar[str] = "lion"
    summary: ClassVar[str] = "the sign of one moment"
    moments: ClassVar[float] = 1.0
    adaptive: ClassVar[bool] = True
    spelled: ClassVar[dict[str, str]] = {"megatron": "lion", "deepspeed": "Lion"}
    kept: ClassVar[tuple[str, ...]] = ("exp_avg",)
    decoupled: ClassVar[bool] = True

    def make(self, tensors: "list[Tensor]", settings: RunSettings, **options: Any) -> "Optimizer":
        from shardwise.plugins.optimizers._steps import lion

        return lion(tensors, settings.betas, options["weight_decay"])


OPTIMIZER = Lion()
