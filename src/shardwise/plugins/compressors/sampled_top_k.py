"""Top-K by a sampled threshold: the same k as exact Top-K, found among the few that pass it.

A sample guesses a threshold that a few more than k pass; only those are sorted. Where fewer than k pass, all are.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._contract import Compressor, Payload, check_count, check_ratio, kept
from shardwise.plugins.compressors._draw import Draw

if TYPE_CHECKING:
    from torch import Tensor

_MORE = 1.25
"""how many more than k the threshold is set to let pass"""


@dataclass(frozen=True)
class SampledTopK(Compressor):
    name: ClassVar[str] = "sampled_top_k"

    ratio: float = 0.01
    samples: int = 2**16

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        check_count("samples", self.samples, 2**24)

    def wire_bytes(self, d: int) -> int:
        return 8 * kept(self.ratio, d)

    def encode(self, row: "Tensor", draw: Draw) -> Payload:  # noqa: ARG002
        import torch

        k, size = kept(self.ratio, row.numel()), row.abs()
        sample = size[:: max(row.numel() // self.samples, 1)]
        guess = sample.topk(min(int(_MORE * self.ratio * sample.numel()) + 1, sample.numel())).values[-1]
        passed = (size >= guess).nonzero().view(-1)
        if passed.numel() < k:
            passed = torch.arange(row.numel(), device=row.device)
        places = passed[size[passed].topk(k, sorted=False).indices]
        return row[places], places.to(torch.int32)

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":  # noqa: ARG002
        values, places = payload
        return values.new_zeros(d).index_put_((places.long(),), values)

    def delta(self, d: int) -> float | None:
        return kept(self.ratio, d) / d

    def repeated(self, rounds: int) -> Compressor | None:
        return SampledTopK(min(self.ratio * rounds, 1.0), self.samples)


COMPRESSOR = SampledTopK
