"""AdamW: two moments, decay apart from the gradient (Loshchilov and Hutter, arXiv:1711.05101)."""

from typing import TYPE_CHECKING, Any, ClassVar

from shardwise.plugins.optimizers._contract import RunSettings, UpdateRule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


class AdamW(UpdateRule):
    name: ClassVar[str] = "adamw"
    summary: ClassVar[str] = "two moments, decoupled decay"
    moments: ClassVar[float] = 2.0
    adaptive: ClassVar[bool] = True
    spelled: ClassVar[dict[str, str]] = {
        "megatron": "adam", "deepspeed": "AdamW", "maxtext": "adamw", "nanotron": "adamW", "torchtitan": "AdamW",
    }  # fmt: skip
    kept: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")
    decoupled: ClassVar[bool] = True
    fuses: ClassVar[bool] = True

    def make(self, tensors: "list[Tensor]", settings: RunSettings, **options: Any) -> "Optimizer":
        import torch

        kind = torch.optim.AdamW if self.decoupled else torch.optim.Adam
        return kind(tensors, lr=0.0, betas=settings.betas, eps=settings.epsilon, **options)


OPTIMIZER = AdamW()
