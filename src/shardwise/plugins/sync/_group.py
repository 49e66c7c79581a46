"""The run's world: one worker per process, on any process group of torch.

Everything travels by point-to-point messages in the order the simulation adds, so results have the same bits. With
`exact=False` the mean of all is left to the library's own all-reduce: faster, bits not promised.
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from shardwise.plugins.collectives._trees import double_tree
from shardwise.plugins.compressors import Compressor, Draw
from shardwise.plugins.compressors._contract import Payload
from shardwise.plugins.sync._comm import Handle, Packets, Ready
from shardwise.plugins.sync._events import SERVER, SyncEvent, halves, part_bounds, part_length, upwards
from shardwise.plugins.sync._layout import ParameterLayout
from shardwise.plugins.sync._ordered import fold, over
from shardwise.plugins.sync._tensors import TensorComm
from shardwise.plugins.topologies import GossipTopology, MixingRound

Bytes = Tensor


class _Reducing:
    """An all-reduce of the library on its way."""

    def __init__(self, total: Tensor, work: Any, n: int) -> None:
        self.total, self.work, self.n = total, work, n

    def wait(self) -> Tensor:
        self.work.wait()
        return self.total / self.n


class _Mixing:
    def __init__(self, x: Tensor, who: MixingRound, place: int, got: list[Tensor], works: list[Any]) -> None:
        self.x, self.weights, self.got, self.works = x, who.weights[place], got, works  # x stays while it is sent

    def wait(self) -> Tensor:
        for work in self.works:
            work.wait()
        out = self.x
        for weight, heard in zip(self.weights, self.got, strict=True):
            out = out + weight * (heard - self.x)
        return out


class GroupComm(TensorComm):
    """ranks: the members in order, as ranks of the whole process group `group`."""

    def __init__(
        self, layout: ParameterLayout, ranks: list[int], rank: int, *, group: Any = None, stride: int = 1,
        seed: int = 0, trace: list[SyncEvent] | None = None, device: torch.device | str = "cpu", exact: bool = True,
    ) -> None:  # fmt: skip
        self.layout, self.ranks, self.group, self.stride = layout, ranks, group, stride
        self.n, self.m = len(ranks), 1
        self.rank, self.place = rank, ranks.index(rank)
        self.workers, self.places = [rank], [self.place]
        self.seed, self.step, self.exact = seed, 0, exact
        self.trace = [] if trace is None else trace
        self.device = torch.device(device)

    def split(self, size: int) -> "tuple[GroupComm, GroupComm]":
        first = self.place // size * size
        settings: dict[str, Any] = {"group": self.group, "seed": self.seed, "trace": self.trace, "device": self.device}
        inside = GroupComm(self.layout, self.ranks[first : first + size], self.rank, stride=self.stride, **settings)
        across = GroupComm(
            self.layout, self.ranks[self.place % size :: size], self.rank, stride=self.stride * size, **settings
        )
        return inside, across

    # -- messages ----------------------------------------------------------------------------------------------

    def _start(self, out: Iterable[tuple[int, Tensor]], into: Iterable[tuple[int, Tensor]]) -> list[Any]:
        """Messages to and from members (by place), all under way at once; empty ones do not travel. What is to come is
        announced first: on gloo that word would wait behind the data that goes the same way, and the other side with
        it."""
        ops = [
            dist.P2POp(what, tensor, group=self.group, group_peer=self.ranks[peer])
            for what, moves in ((dist.irecv, into), (dist.isend, out))
            for peer, tensor in moves
            if tensor.numel()
        ]
        return dist.batch_isend_irecv(ops) if ops else []

    def _swap(self, out: Iterable[tuple[int, Tensor]], into: Iterable[tuple[int, Tensor]]) -> None:
        for work in self._start(out, into):
            work.wait()

    def _others(self) -> list[int]:
        return [place for place in range(self.n) if place != self.place]

    def _all_gather(self, mine: Tensor, lengths: list[int]) -> list[Tensor]:
        """Everyone's tensor, which may differ in length."""
        got = [mine if p == self.place else mine.new_empty(length) for p, length in enumerate(lengths)]
        self._swap([(p, mine) for p in self._others()], [(p, got[p]) for p in self._others()])
        return got

    # -- verbs -------------------------------------------------------------------------------------------------

    def _mean(self, x: Tensor, via: str) -> Handle:
        if self.n == 1:
            return Ready(x)
        if not self.exact and self.stride == 1:
            total = x.clone()
            return _Reducing(total, dist.all_reduce(total, group=self.group, async_op=True), self.n)
        row = x[0].contiguous()
        total = {"ring": self._ring, "tree": self._tree, "server": self._server, "sharded": self._sharded}[via](row)
        return Ready(total[None])

    def _ring(self, row: Tensor) -> Tensor:
        n, here = self.n, self.place
        before, after = (here - 1) % n, (here + 1) % n
        held = [row[start:stop].clone() for start, stop in part_bounds(row.numel(), n)]
        for step in range(n - 1):
            part, coming = (here - step - 1) % n, (here - step - 2) % n
            got = torch.empty_like(held[coming])
            self._swap([(after, held[part])], [(before, got)])
            held[coming] = got + held[coming]
        held[here] = over(held[here], n)
        for step in range(n - 1):
            self._swap([(after, held[(here - step) % n])], [(before, held[(here - step - 1) % n])])
        return torch.cat(held)

    def _tree(self, row: Tensor) -> Tensor:
        held = [row[start:stop].clone() for start, stop in halves(row.numel())]
        for half, tree in enumerate(double_tree(self.n)):
            edges = upwards(tree)
            for child, parent in edges:
                if self.place == child:
                    self._swap([(parent, held[half])], [])
                elif self.place == parent:
                    got = torch.empty_like(held[half])
                    self._swap([], [(child, got)])
                    held[half] = held[half] + got
            if self.place not in tree:
                held[half] = over(held[half], self.n)
            for child, parent in reversed(edges):
                if self.place == parent:
                    self._swap([(child, held[half])], [])
                elif self.place == child:
                    self._swap([], [(parent, held[half])])
        return torch.cat(held)

    def _server(self, row: Tensor) -> Tensor:
        everyone = tuple(range(self.n))
        total = self._push(row[None], everyone)
        return self._pull(row[None], over(total, self.n), everyone)[0]

    def _sharded(self, row: Tensor) -> Tensor:
        d = row.numel()
        mine = self.fold(self._spread(row[None]))
        return self._collect(mine, d)[0]

    def _mix(self, x: Tensor, topology: GossipTopology, step: int) -> Handle:
        who = topology.rounds(self.n)[step]
        out = x.contiguous()
        got = [torch.empty_like(out) for _ in who.sources[self.place]]
        sends = [(peer, out) for peer in who.targets[self.place]]
        return _Mixing(out, who, self.place, got, self._start(sends, zip(who.sources[self.place], got, strict=True)))

    def _broadcast(self, x: Tensor) -> Tensor:
        row = x.contiguous().clone()
        if self.place > 0:
            self._swap([], [(self.place - 1, row)])
        if self.place < self.n - 1:
            self._swap([(self.place + 1, row)], [])
        return row

    def _spread(self, x: Tensor) -> Tensor:
        bounds = part_bounds(x.shape[1], self.n)
        start, stop = bounds[self.place]
        got = x.new_zeros(self.n, part_length(x.shape[1], self.n))
        got[self.place, : stop - start] = x[0, start:stop]
        self._swap(
            [(p, x[0, bounds[p][0] : bounds[p][1]].contiguous()) for p in self._others()],
            [(p, got[p, : stop - start]) for p in self._others()],
        )
        return got[None]

    def _collect(self, part: Tensor, d: int) -> Tensor:
        bounds = part_bounds(d, self.n)
        start, stop = bounds[self.place]
        return torch.cat(self._all_gather(part[0, : stop - start].contiguous(), [b - a for a, b in bounds]))[None]

    def _average(self, codec: Compressor, packets: Packets) -> Tensor:
        return self._mean_of(codec, *self._gathered(packets))[None]

    def _gathered(self, packets: Packets) -> tuple[list[Payload], int, list[Draw]]:
        """Everyone's message, in order."""
        own = packets.payloads[0][0]
        message = _flat(own)
        got = self._all_gather(message, [message.numel()] * self.n)
        return [_cut(data, own) for data in got], packets.length, [self._sender(packets, p) for p in range(self.n)]

    def _sender(self, packets: Packets, place: int, part: int = 0) -> Draw:
        """The draw of another member for the same purpose."""
        return self._draw(self.ranks[place], part, packets.draws[0][0].purpose >> 16)

    def _exchange(self, codec: Compressor, packets: Packets) -> Packets:  # noqa: ARG002
        own = packets.payloads[0]
        messages = [_flat(payload) for payload in own]
        got = [torch.empty_like(messages[0]) for _ in range(self.n)]
        got[self.place] = messages[self.place]
        self._swap([(p, messages[p]) for p in self._others()], [(p, got[p]) for p in self._others()])
        draws = [self._sender(packets, place, self.place) for place in range(self.n)]
        return Packets([[_cut(data, own[0]) for data in got]], packets.length, [draws], parted=True)

    def _publish(self, codec: Compressor, packets: Packets, d: int) -> Tensor:
        payloads, length, draws = self._gathered(packets)
        pairs = zip(payloads, draws, strict=True)
        return torch.cat([self._row_of(codec, payload, length, draw) for payload, draw in pairs])[None, :d]

    def _push(self, x: Tensor, members: tuple[int, ...]) -> Tensor:
        if self.place != SERVER:
            if self.place in members:
                self._swap([(SERVER, x.contiguous())], [])
            return x
        got = {place: x if place == SERVER else torch.empty_like(x) for place in members}
        self._swap([], [(place, got[place]) for place in members if place != SERVER])
        return fold(torch.cat([got[place] for place in members]))[None]

    def _pull(self, x: Tensor, held: Tensor, members: tuple[int, ...]) -> Tensor:
        away = [place for place in members if place != SERVER]
        if self.place == SERVER:
            self._swap([(place, held.contiguous()) for place in away], [])
            return held if SERVER in members else x
        if self.place not in away:
            return x
        got = torch.empty_like(x)
        self._swap([], [(SERVER, got)])
        return got


def _flat(payload: tuple[Tensor, ...]) -> Bytes:
    """The payload as one message of bytes: what is sent is what the payload holds, no more."""
    return torch.cat([part.contiguous().view(-1).view(torch.uint8) for part in payload])


def _cut(data: Bytes, like: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    found, start = [], 0
    for part in like:
        piece = data[start : start + part.nbytes].clone()
        found.append(piece.view(part.dtype).view(part.shape))
        start += part.nbytes
    return tuple(found)
