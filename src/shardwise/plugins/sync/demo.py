"""DeMo: momentum stays local; its fastest components (the largest of a cosine transform) are sent and taken out of it,
and everyone steps by the sign of their mean.

The transform works on tiles of the long row, chunk x chunk numbers each; a coefficient travels as bf16 and a 16-bit
place. The mean is over all n workers.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, cos, pi, sqrt
from typing import ClassVar

from shardwise.plugins.compressors import Compressor, Draw
from shardwise.plugins.compressors._contract import Payload
from shardwise.plugins.sync._array import Array, local
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count, need_share


@lru_cache(maxsize=8)
def _cosines(size: int) -> Array:
    """The orthonormal DCT-II matrix."""
    import torch

    rows = [
        [sqrt((1 if k == 0 else 2) / size) * cos(pi * (2 * i + 1) * k / (2 * size)) for i in range(size)]
        for k in range(size)
    ]
    return torch.tensor(rows, dtype=torch.float32)


@dataclass(frozen=True)
class _Fastest(Compressor):
    """The k largest coefficients of each tile."""

    name: ClassVar[str] = "fastest_components"

    chunk: int
    k: int

    def _tiles(self, d: int) -> int:
        return ceil(d / self.chunk**2)

    def wire_bytes(self, d: int) -> int:
        return 4 * self._tiles(d) * self.k

    def encode(self, row: Array, draw: Draw) -> Payload:  # noqa: ARG002
        import torch
        from torch.nn.functional import pad

        tiles, basis = self._tiles(row.numel()), _cosines(self.chunk).to(row.device)
        tile = pad(row, (0, tiles * self.chunk**2 - row.numel())).view(tiles, self.chunk, self.chunk)
        found = (basis @ tile @ basis.T).view(tiles, -1)
        places = found.abs().topk(self.k, dim=1, sorted=False).indices
        return found.gather(1, places).to(torch.bfloat16), places.to(torch.int16)

    def decode(self, payload: Payload, d: int, draw: Draw) -> Array:  # noqa: ARG002
        import torch

        values, places = payload
        basis = _cosines(self.chunk).to(values.device)
        found = torch.zeros(self._tiles(d), self.chunk**2, device=values.device)
        tile = found.scatter_(1, places.long(), values.float()).view(-1, self.chunk, self.chunk)
        return (basis.T @ tile @ basis).reshape(-1)[:d]

    def delta(self, d: int) -> float | None:  # noqa: ARG002
        return self.k / self.chunk**2 * (1.0 - 2.0**-16)


@dataclass(frozen=True)
class DeMo(Strategy):
    name: ClassVar[str] = "demo"
    summary: ClassVar[str] = "fastest components of a local momentum, sign steps"
    source: ClassVar[str] = "Peng et al. 2024, arXiv:2411.19870"
    optimizer: ClassVar[str] = "sgd"
    gradient_only: ClassVar[bool] = True

    decay: float = 0.999
    chunk: int = 64
    k: int = 32

    def __post_init__(self) -> None:
        need_share("decay", self.decay)
        need_count("k", self.k)
        if not 1 <= self.chunk <= 128 or self.k > self.chunk**2:
            raise ValueError(f"chunk: {self.chunk} with k {self.k}; write a chunk of 1 to 128, k up to its square")

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {"momentum": x * 0.0}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        codec = _Fastest(self.chunk, self.k)
        momentum: Array = self.decay * state["momentum"] + lr * g
        packets = c.encode(codec, momentum)
        state["momentum"] = momentum - c.decode(codec, packets)
        return local(_sign, c.average(codec, packets))

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return (cls(chunk=8, k=4),)


def _sign(x: Array) -> Array:
    return x.sign()


STRATEGY = DeMo
