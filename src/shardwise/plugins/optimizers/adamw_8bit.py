"""AdamW with moments of 8 bits: a byte each, and a scale in fp32 for every 256 of them (Dettmers et al.,
arXiv:2110.02861; blocks of 256 in bitsandbytes, optim/optimizer.py, and torchao, optim/adam.py).

Both keep tensors below 4,096 elements in fp32: norms and biases of small models, which are counted here as 8 bits too.
"""

from typing import ClassVar

from shardwise.plugins.optimizers._contract import UpdateRule

BLOCK = 256


class AdamW8bit(UpdateRule):
    name: ClassVar[str] = "adamw-8bit"
    summary: ClassVar[str] = "two moments of 8 bits with scales by block"
    extra_bytes: ClassVar[float] = 2 * (1 + 4 / BLOCK)
    adaptive: ClassVar[bool] = True
    refused: ClassVar[str] = "torch has no 8-bit AdamW; write --optimizer adamw"


OPTIMIZER = AdamW8bit()
