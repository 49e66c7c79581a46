"""The world without numbers: shapes only, for costs. No torch."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from shardwise.plugins.compressors import Compressor
from shardwise.plugins.sync._array import Array, Ghost
from shardwise.plugins.sync._comm import Communicator, Handle, Packets, Ready
from shardwise.plugins.sync._events import FP32, SyncEvent, part_length
from shardwise.plugins.sync._layout import ParameterLayout
from shardwise.plugins.topologies import GossipTopology


@dataclass
class Passes:
    """What compressing touches, at one worker."""

    encoded: Counter[str] = field(default_factory=Counter)
    """numbers read and encoded, by compressor"""
    decoded_bytes: int = 0
    """messages of others read, and what comes of them written"""


def _ghost(*shape: int) -> Any:
    return Ghost(*shape)


class GhostComm(Communicator):
    def __init__(
        self,
        layout: ParameterLayout,
        n: int,
        stride: int = 1,
        trace: list[SyncEvent] | None = None,
        passes: Passes | None = None,
    ) -> None:
        self.n, self.m, self.stride, self.layout = n, 1, stride, layout
        self.seed, self.step = 0, 0
        self.trace = [] if trace is None else trace
        self.passes = Passes() if passes is None else passes

    def encode(self, codec: Compressor, x: Array, purpose: int = 0) -> Packets:  # noqa: ARG002
        self.passes.encoded[codec.name] += x.numel()
        parts = x.shape[1] if len(x.shape) == 3 else 1
        return Packets([[None] * parts], x.shape[-1], parted=len(x.shape) == 3)

    def decode(self, codec: Compressor, packets: Packets) -> Array:  # noqa: ARG002
        parts = len(packets.payloads[0])
        whole: Array = _ghost(1, parts, packets.length) if packets.parted else _ghost(1, packets.length)
        return whole

    def parts(self, x: Array) -> Array:
        found: Array = _ghost(1, self.n, part_length(x.shape[1], self.n))
        return found

    def whole(self, parts: Array, d: int) -> Array:  # noqa: ARG002
        found: Array = _ghost(1, d)
        return found

    def fold(self, parts: Array) -> Array:
        found: Array = _ghost(1, parts.shape[2])
        return found

    def own_part(self, parts: Array) -> Array:
        return self.fold(parts)

    def rows(self, values: list[float]) -> Array:  # noqa: ARG002
        found: Array = _ghost(1, 1)
        return found

    def split(self, size: int) -> tuple[Communicator, Communicator]:
        return (
            GhostComm(self.layout, size, self.stride, self.trace, self.passes),
            GhostComm(self.layout, self.n // size, self.stride * size, self.trace, self.passes),
        )

    def _mean(self, x: Array, via: str) -> Handle:  # noqa: ARG002
        return Ready(x)

    def _mix(self, x: Array, topology: GossipTopology, step: int) -> Handle:  # noqa: ARG002
        return Ready(x)

    def _broadcast(self, x: Array) -> Array:
        return x

    def _spread(self, x: Array) -> Array:
        return self.parts(x)

    def _collect(self, part: Array, d: int) -> Array:
        return self.whole(part, d)

    def _heard(self, message: int, written: int) -> None:
        self.passes.decoded_bytes += self.n * message + FP32 * written

    def _average(self, codec: Compressor, packets: Packets) -> Array:
        self._heard(codec.wire_bytes(packets.length), packets.length)
        return self.decode(codec, packets)

    def _exchange(self, codec: Compressor, packets: Packets) -> Packets:
        self._heard(codec.wire_bytes(packets.length), packets.length)
        return packets

    def _publish(self, codec: Compressor, packets: Packets, d: int) -> Array:
        self._heard(codec.wire_bytes(packets.length), d)
        found: Array = _ghost(1, d)
        return found

    def _push(self, x: Array, members: tuple[int, ...]) -> Array:  # noqa: ARG002
        return x

    def _pull(self, x: Array, held: Array, members: tuple[int, ...]) -> Array:  # noqa: ARG002
        return x

    def _stacked(self, codec: Compressor, packets: Packets) -> Array:
        self.passes.decoded_bytes += codec.wire_bytes(packets.length) + FP32 * packets.length
        found: Array = _ghost(1, codec.wire_bytes(packets.length) // FP32)
        return found

    def _unstacked(self, packets: Packets, values: Array) -> Packets:  # noqa: ARG002
        return packets
