"""What the simulation and the run share: encoding row by row, cutting into parts, adding in order.

Where a compressor has kernels for the device they do the same in one pass, with the same bits.

Rows are encoded one by one, never as a batch: a reduction over a batch may add in another order, and then a simulation
would not end with the bits of a run.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from shardwise.plugins.compressors import Compressor, Draw
from shardwise.plugins.compressors._contract import Payload
from shardwise.plugins.sync._comm import Communicator, Packets
from shardwise.plugins.sync._events import part_length
from shardwise.plugins.sync._ordered import mean


class TensorComm(Communicator):
    workers: list[int]
    """global number of each worker held here"""
    places: list[int]
    """its place in its group"""
    device: torch.device

    def _draw(self, worker: int, part: int, purpose: int) -> Draw:
        return Draw(self.seed, self.step, worker, (purpose << 16) + part)

    def _draws(self, parts: int, purpose: int) -> list[list[Draw]]:
        return [[self._draw(worker, part, purpose) for part in range(parts)] for worker in self.workers]

    def encode(self, codec: Compressor, x: Tensor, purpose: int = 0) -> Packets:
        rows = x[:, None] if x.dim() == 2 else x
        draws = self._draws(rows.shape[1], purpose)
        payloads = [
            [codec.encode(rows[i, part].clone(), draws[i][part]) for part in range(rows.shape[1])]
            for i in range(len(self.workers))
        ]
        return Packets(payloads, rows.shape[2], draws, parted=x.dim() == 3)

    def feed_back(self, codec: Compressor, x: Tensor, rest: Tensor, purpose: int = 0) -> tuple[Packets, Tensor]:
        kernels = codec.kernels(x.device)
        if kernels is None:
            return super().feed_back(codec, x, rest, purpose)
        return self._in_one_pass(kernels.feed_back, x, rest, purpose)

    def track(self, codec: Compressor, x: Tensor, estimate: Tensor, purpose: int = 0) -> tuple[Packets, Tensor]:
        kernels = codec.kernels(x.device)
        if kernels is None:
            return super().track(codec, x, estimate, purpose)
        return self._in_one_pass(kernels.track, x, estimate, purpose)

    def _in_one_pass(
        self, encode: Callable[[Tensor, Tensor, Tensor], Payload], x: Tensor, held: Tensor, purpose: int
    ) -> tuple[Packets, Tensor]:
        rows, kept = ((a[:, None] if a.dim() == 2 else a).contiguous() for a in (x, held))
        out = torch.empty_like(rows)
        payloads = [
            [encode(*parts) for parts in zip(*worker, strict=True)] for worker in zip(rows, kept, out, strict=True)
        ]
        packets = Packets(payloads, rows.shape[2], self._draws(rows.shape[1], purpose), parted=x.dim() == 3)
        return packets, out if packets.parted else out[:, 0]

    def joined(self, codec: Compressor, packets: Packets) -> Tensor:
        if packets.decoded is not None:
            return super().joined(codec, packets)
        pairs = zip(packets.payloads, packets.draws, strict=True)
        return torch.stack([self._mean_of(codec, row, packets.length, draws) for row, draws in pairs])

    def _mean_of(self, codec: Compressor, payloads: list[Payload], length: int, draws: list[Draw]) -> Tensor:
        """What the messages say, added in their order, by their number."""
        kernels = codec.kernels(self.device)
        if kernels is not None:
            return kernels.mean(payloads, length)
        rows = [codec.decode(payload, length, draw) for payload, draw in zip(payloads, draws, strict=True)]
        return mean(torch.stack(rows))

    def _row_of(self, codec: Compressor, payload: Payload, length: int, draw: Draw) -> Tensor:
        kernels = codec.kernels(self.device)
        return codec.decode(payload, length, draw) if kernels is None else kernels.mean([payload], length)

    def decode(self, codec: Compressor, packets: Packets) -> Tensor:
        if packets.decoded is None:
            pairs = [zip(*both, strict=True) for both in zip(packets.payloads, packets.draws, strict=True)]
            out = torch.stack([
                torch.stack([self._row_of(codec, payload, packets.length, draw) for payload, draw in row])
                for row in pairs
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
        return mean(parts.transpose(0, 1).reshape(n, m * length)).view(m, length)

    def own_part(self, parts: Tensor) -> Tensor:
        return torch.stack([parts[i, place] for i, place in enumerate(self.places)])

    def rows(self, values: list[float]) -> Tensor:
        return torch.tensor([[values[place]] for place in self.places], dtype=torch.float32, device=self.device)

    def _stacked(self, codec: Compressor, packets: Packets) -> Tensor:  # noqa: ARG002
        return torch.stack([row[0][0] for row in packets.payloads])

    def _unstacked(self, packets: Packets, values: Tensor) -> Packets:
        return Packets([[(row,)] for row in values], packets.length, packets.draws)
