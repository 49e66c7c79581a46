"""The verbs a strategy speaks with. One interface, three worlds: ghosts (cost), a stack (simulation), a group (run).

The base class records the event of every verb and leaves the doing to the world. Sums have a fixed order that belongs
to the algorithm, so that a simulation and a run end with the same bits.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Protocol

from shardwise.plugins.compressors import Compressor, Draw
from shardwise.plugins.sync import _events
from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._events import SyncEvent
from shardwise.plugins.sync._layout import ParameterLayout
from shardwise.plugins.topologies import GossipTopology

VIA = ("ring", "tree", "server", "sharded")
"""ways to take the mean of all"""


class Handle(Protocol):
    """A result on its way."""

    def wait(self) -> Array: ...


@dataclass(frozen=True)
class Ready:
    """A result that is there."""

    value: Array

    def wait(self) -> Array:
        return self.value


@dataclass
class Packets:
    """Encoded rows: payloads[worker] of this process, each a list with one payload per part."""

    payloads: list[list[Any]]
    length: int
    """numbers in each encoded part"""
    draws: list[list[Draw]] = field(default_factory=list)
    parted: bool = False
    """encoded from (m, parts, length), so decoded to it"""
    decoded: Array | None = None
    """kept once known: a simulation would decode every message at its sender and again at its receiver"""


class Communicator(ABC):
    """n: members of each group; m: workers held by this process; d: numbers of the whole model."""

    n: int
    m: int
    stride: int
    layout: ParameterLayout
    seed: int
    step: int
    trace: list[SyncEvent]

    def _record(self, event: SyncEvent) -> None:
        self.trace.append(event)

    # -- verbs -------------------------------------------------------------------------------------------------

    def mean(self, x: Array, via: str = "ring") -> Array:
        """The mean over the group, at every member."""
        return self.start_mean(x, via).wait()

    def start_mean(self, x: Array, via: str = "ring") -> Handle:
        self._record(_events.mean_event(x.shape[1], self.n, self.stride, via))
        return self._mean(x, via)

    def mix(self, x: Array, topology: GossipTopology, step: int) -> Array:
        """x_i + the sum over j of w_ij (x_j - x_i): in this form rounding cannot drift."""
        return self.start_mix(x, topology, step).wait()

    def start_mix(self, x: Array, topology: GossipTopology, step: int) -> Handle:
        place = step % topology.period(self.n)
        self._record(_events.mix_event(x.shape[1], self.n, self.stride, topology, place))
        return self._mix(x, topology, place)

    def broadcast(self, x: Array) -> Array:
        """The first member's row, at every member."""
        self._record(_events.broadcast_event(x.shape[1], self.n, self.stride))
        return self._broadcast(x)

    def spread(self, x: Array) -> Array:
        """Member p gets part p of everyone: (m, d) -> (m, n, part), zeros behind the end."""
        self._record(_events.spread_event(x.shape[1], self.n, self.stride))
        return self._spread(x)

    def collect(self, part: Array, d: int) -> Array:
        """Parts of all members side by side: (m, part) -> (m, d)."""
        self._record(_events.collect_event(d, self.n, self.stride))
        return self._collect(part, d)

    def average(self, codec: Compressor, packets: Packets) -> Array:
        """The mean of all members' decoded rows: by all-reduce where messages add, else by all-gather."""
        if codec.linear:
            values = self.mean(self._stacked(codec, packets))
            return self.decode(codec, self._unstacked(packets, values))[:, : packets.length]
        self._record(_events.gather_event(codec.wire_bytes(packets.length), self.n, self.stride))
        return self._average(codec, packets)

    def exchange(self, codec: Compressor, packets: Packets) -> Packets:
        """Member p gets the encoded part p of everyone."""
        self._record(_events.exchange_event(codec.wire_bytes(packets.length), self.n, self.stride))
        return self._exchange(codec, packets)

    def publish(self, codec: Compressor, packets: Packets, d: int) -> Array:
        """Every member's encoded part, decoded side by side at every member: (m, d)."""
        self._record(_events.gather_event(codec.wire_bytes(packets.length), self.n, self.stride))
        return self._publish(codec, packets, d)

    def push(self, x: Array, members: tuple[int, ...]) -> Array:
        """The sum of these members' rows at the server, in their order; elsewhere the result means nothing."""
        self._record(_events.server_event("push", x.shape[1], self.n, self.stride, members))
        return self._push(x, members)

    def pull(self, x: Array, held: Array, members: tuple[int, ...]) -> Array:
        """`held` of the server to these members; the others keep x."""
        self._record(_events.server_event("pull", x.shape[1], self.n, self.stride, members))
        return self._pull(x, held, members)

    # -- local work --------------------------------------------------------------------------------------------

    def feed_back(self, codec: Compressor, x: Array, rest: Array, purpose: int = 0) -> tuple[Packets, Array]:
        """x with what earlier messages left out, encoded; and what these leave out."""
        row = rest + x
        packets = self.encode(codec, row, purpose)
        return packets, row - self.decode(codec, packets)

    def track(self, codec: Compressor, x: Array, estimate: Array, purpose: int = 0) -> tuple[Packets, Array]:
        """What the receivers' estimate lacks of x, encoded; and the estimate they have then."""
        packets = self.encode(codec, x - estimate, purpose)
        return packets, estimate + self.decode(codec, packets)

    def joined(self, codec: Compressor, packets: Packets) -> Array:
        """The mean of the decoded parts that arrived, in the order of their senders: (m, part)."""
        return self.fold(self.decode(codec, packets))

    @abstractmethod
    def encode(self, codec: Compressor, x: Array, purpose: int = 0) -> Packets:
        """(m, d) -> one part per worker; (m, parts, length) -> that many."""

    @abstractmethod
    def decode(self, codec: Compressor, packets: Packets) -> Array:
        """What the receiver of the packets has: (m, d), or (m, parts, length) where there are several parts."""

    @abstractmethod
    def parts(self, x: Array) -> Array:
        """(m, d) -> (m, n, part), zeros behind the end; nothing is sent."""

    @abstractmethod
    def whole(self, parts: Array, d: int) -> Array:
        """(m, n, part) -> (m, d)."""

    @abstractmethod
    def fold(self, parts: Array) -> Array:
        """The mean over the second axis, in its order: (m, n, part) -> (m, part)."""

    @abstractmethod
    def split(self, size: int) -> "tuple[Communicator, Communicator]":
        """(inside groups of neighbours, across the groups: members at the same place of each)."""

    @abstractmethod
    def rows(self, values: list[float]) -> Array:
        """One number per member -> (m, 1): those of the workers held here."""

    @abstractmethod
    def own_part(self, parts: Array) -> Array:
        """(m, n, part) -> (m, part): the part at each worker's own place in its group."""

    # -- what a world must do ----------------------------------------------------------------------------------

    @abstractmethod
    def _mean(self, x: Array, via: str) -> Handle: ...

    @abstractmethod
    def _mix(self, x: Array, topology: GossipTopology, step: int) -> Handle: ...

    @abstractmethod
    def _broadcast(self, x: Array) -> Array: ...

    @abstractmethod
    def _spread(self, x: Array) -> Array: ...

    @abstractmethod
    def _collect(self, part: Array, d: int) -> Array: ...

    @abstractmethod
    def _average(self, codec: Compressor, packets: Packets) -> Array: ...

    @abstractmethod
    def _exchange(self, codec: Compressor, packets: Packets) -> Packets: ...

    @abstractmethod
    def _publish(self, codec: Compressor, packets: Packets, d: int) -> Array: ...

    @abstractmethod
    def _push(self, x: Array, members: tuple[int, ...]) -> Array: ...

    @abstractmethod
    def _pull(self, x: Array, held: Array, members: tuple[int, ...]) -> Array: ...

    @abstractmethod
    def _stacked(self, codec: Compressor, packets: Packets) -> Array: ...

    @abstractmethod
    def _unstacked(self, packets: Packets, values: Array) -> Packets: ...
