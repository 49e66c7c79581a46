"""AdamW with moments of 8 bits: a byte each, and a scale in fp32 for every 256 of them (Dettmers et al.,
arXiv:2110.02861; blocks of 256 in bitsandbytes, optim/optimizer.py, and torchao, optim/adam.py).

Tensors below 4,096 elements keep theirs in fp32, as both have it. Blocks begin where a rank's elements of a tensor do,
in both too: other layouts round other blocks. Here a square above 0 is never rounded to 0, as theirs may be: rows of an
embedding without tokens in a step would move without bounds. Checkpoints hold moments in full, so that AdamW reads them
too. `launches`: a compiled call on shapes that vary took the host 240 microseconds beside an H200.
"""

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shardwise.plugins.optimizers._contract import Elements, RunSettings, TensorPieces, UpdateRule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

BLOCK = 256
LEAST = 4096
"""elements of a tensor whose moments are rounded"""


class AdamW8bit(UpdateRule):
    name: ClassVar[str] = "adamw-8bit"
    summary: ClassVar[str] = "two moments of 8 bits with scales by block"
    extra_bytes: ClassVar[float] = 2 * (1 + 4 / BLOCK)
    by_shape: ClassVar[bool] = True
    rounds_moments: ClassVar[bool] = True
    launches: ClassVar[float] = 17.0
    adaptive: ClassVar[bool] = True
    kept: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")
    decoupled: ClassVar[bool] = True

    def state_bytes(self, held: TensorPieces, moment_bytes: float) -> Elements:  # noqa: ARG002
        each = np.where(held.elements / held.number < LEAST, 8.0, self.extra_bytes)
        return held.elements * each

    def make(self, tensors: "list[Tensor]", settings: RunSettings, **options: Any) -> "Optimizer":
        from shardwise.plugins.optimizers._rounded import AdamOfBytes

        return AdamOfBytes(tensors, settings.betas, settings.epsilon, options["weight_decay"])


OPTIMIZER = AdamW8bit()
