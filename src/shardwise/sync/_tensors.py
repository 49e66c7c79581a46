"""What the simulation and the run share: encoding row by row, cutting into parts, adding in order.

Rows are encoded one by one, never as a batch: a reduction over a batch may add in another order, and then a simulation
would not end with the bits of a run.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from shardwise.compressors import Compressor, Draw
from shardwise.sync._comm import Comm, Packets
from shardwise.sync._events import part_length
from shardwise.sync._ordered import fold


class TensorComm(Comm):
    workers: list[int]
    """global number of each worker held here"""
    places: list[int]
    """its place in its group"""
    device: torch.device

    def _draw(self, worker: int, part: int, purpose: int) -> Draw:
        return Draw(self.seed, self.step, worker, (purpose << 16) + part)

    def encode(self, codec: Compressor, x: Tensor, purpose: int = 0) -> Packets:
        rows = x[:, None] if x.dim() == 2 else x
        draws = [[self._draw(w, part, purpose) for part in range(rows.shape[1])] for w in self.workers]
        payloads = [
            [codec.encode(rows[i, part].clone(), draws[i][part]) for part in range(rows.shape[1])]
            for i in range(len(self.workers))
        ]
        return Packets(payloads, rows.shape[2], draws, parted=x.dim() == 3)

    def decode(self, codec: Compressor, packets: Packets) -> Tensor:
        if packets.decoded is None:
            out = torch.stack([
                torch.stack([codec.decode(one, packets.length, draw) for one, draw in zip(row, draws, strict=True)])
                for row, draws in zip(packets.payloads, packets.draws, strict=True)
            ])  # fmt: skip
            packets.decoded = out if packets.parted else out[:, 0]
        return packets.decoded

    def parts(self, x: Tensor) -> Tensor:
        length = part_length(x.shape[1], self.n)
        return pad(x, (0, self.n * length - x.shape[1])).view(x.shape[0], self.n, length)

    def whole(self, parts: Tensor, d: int) -> Tensor:
        return parts.reshape(parts.shape[0], -1)[:, :d]

    def fold(self, parts: Tensor) -> Tensor:
        m, n, length = parts.shape
        return fold(parts.transpose(0, 1).reshape(n, m * length)).view(m, length) / n

    def own_part(self, parts: Tensor) -> Tensor:
        return torch.stack([parts[i, place] for i, place in enumerate(self.places)])

    def rows(self, values: list[float]) -> Tensor:
        return torch.tensor([[values[place]] for place in self.places], dtype=torch.float32, device=self.device)

    def _stacked(self, codec: Compressor, packets: Packets) -> Tensor:  # noqa: ARG002
        return torch.stack([row[0][0] for row in packets.payloads])

    def _unstacked(self, packets: Packets, values: Tensor) -> Packets:
        return Packets([[(row,)] for row in values], packets.length, packets.draws)
