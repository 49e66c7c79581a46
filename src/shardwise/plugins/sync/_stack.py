"""The simulation's world: all n workers in one process, as rows of one tensor."""

import torch
from torch import Tensor

from shardwise.plugins.compressors import Compressor
from shardwise.plugins.sync._comm import Handle, Packets, Ready
from shardwise.plugins.sync._events import SyncEvent
from shardwise.plugins.sync._layout import ParameterLayout
from shardwise.plugins.sync._ordered import SUMS, fold, mean, over
from shardwise.plugins.sync._tensors import TensorComm
from shardwise.plugins.topologies import GossipTopology, MixingRound


class StackComm(TensorComm):
    """groups: the rows of each group, in the order of their places; one group of all unless split."""

    def __init__(
        self, layout: ParameterLayout, groups: list[list[int]], *, stride: int = 1, seed: int = 0,
        trace: list[SyncEvent] | None = None, device: torch.device | str = "cpu",
    ) -> None:  # fmt: skip
        self.layout, self.groups, self.stride = layout, groups, stride
        self.n, self.m = len(groups[0]), sum(map(len, groups))
        self.workers = list(range(self.m))
        place = {row: at for group in groups for at, row in enumerate(group)}
        self.places = [place[row] for row in self.workers]
        self.seed, self.step = seed, 0
        self.trace = [] if trace is None else trace
        self.device = torch.device(device)

    @classmethod
    def of(cls, layout: ParameterLayout, n: int, seed: int = 0, device: torch.device | str = "cpu") -> "StackComm":
        return cls(layout, [list(range(n))], seed=seed, device=device)

    def split(self, size: int) -> "tuple[StackComm, StackComm]":
        inside = [group[i : i + size] for group in self.groups for i in range(0, self.n, size)]
        across = [group[i::size] for group in self.groups for i in range(size)]
        return (
            StackComm(self.layout, inside, stride=self.stride, seed=self.seed, trace=self.trace, device=self.device),
            StackComm(self.layout, across, stride=self.stride * size, seed=self.seed, trace=self.trace,
                      device=self.device),
        )  # fmt: skip

    def _per_group(self, results: list[Tensor]) -> Tensor:
        """One result per group, at each of its members: (m, ...)."""
        if len(results) == 1:
            return results[0].expand(self.m, *results[0].shape)
        whose = {row: at for at, group in enumerate(self.groups) for row in group}
        return torch.stack([results[whose[row]] for row in self.workers])

    def _mean(self, x: Tensor, via: str) -> Handle:
        return Ready(self._per_group([over(SUMS[via](x[group]), self.n) for group in self.groups]))

    def _mix(self, x: Tensor, topology: GossipTopology, step: int) -> Handle:
        who = topology.rounds(self.n)[step]
        if len(self.groups) == 1:
            return Ready(mixed(x, who))
        out = torch.empty_like(x)
        for group in self.groups:
            out[group] = mixed(x[group], who)
        return Ready(out)

    def _broadcast(self, x: Tensor) -> Tensor:
        return self._per_group([x[group[0]] for group in self.groups])

    def _spread(self, x: Tensor) -> Tensor:
        parts = self.parts(x)
        out = torch.empty_like(parts)
        for group in self.groups:
            out[group] = parts[group].transpose(0, 1)
        return out

    def _collect(self, part: Tensor, d: int) -> Tensor:
        return self._per_group([part[group].reshape(-1)[:d] for group in self.groups])

    def _average(self, codec: Compressor, packets: Packets) -> Tensor:
        if packets.decoded is None:
            return self._per_group([
                self._mean_of(codec, [packets.payloads[row][0] for row in group], packets.length,
                              [packets.draws[row][0] for row in group])
                for group in self.groups
            ])  # fmt: skip
        rows = packets.decoded
        return self._per_group([mean(rows[group]) for group in self.groups])

    def _exchange(self, codec: Compressor, packets: Packets) -> Packets:  # noqa: ARG002
        payloads: list[list[object]] = [[] for _ in self.workers]
        draws = [[packets.draws[0][0]] for _ in self.workers]
        decoded = None if packets.decoded is None else torch.empty_like(packets.decoded)
        for group in self.groups:
            for place, row in enumerate(group):
                payloads[row] = [packets.payloads[source][place] for source in group]
                draws[row] = [packets.draws[source][place] for source in group]
            if decoded is not None and packets.decoded is not None:
                decoded[group] = packets.decoded[group].transpose(0, 1)
        return Packets(payloads, packets.length, draws, parted=True, decoded=decoded)

    def _publish(self, codec: Compressor, packets: Packets, d: int) -> Tensor:
        return self._collect(self.decode(codec, packets), d)

    def _push(self, x: Tensor, members: tuple[int, ...]) -> Tensor:
        return self._per_group([fold(x[[group[i] for i in members]]) for group in self.groups])

    def _pull(self, x: Tensor, held: Tensor, members: tuple[int, ...]) -> Tensor:
        out = x.clone()
        for group in self.groups:
            rows = [group[i] for i in members]
            out[rows] = held[group[0]]
        return out


_SLOTS: dict[tuple[int, str], tuple[MixingRound, list[tuple[Tensor, Tensor]]]] = {}


def _slots(who: MixingRound, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """The k-th source and its weight for every worker at once; who has fewer hears itself with no weight."""
    key = (id(who), str(device))
    if key not in _SLOTS:
        most, found = max(map(len, who.sources)), []
        for k in range(most):
            source = [s[k] if k < len(s) else i for i, s in enumerate(who.sources)]
            weight = [w[k] if k < len(w) else 0.0 for w in who.weights]
            found.append(
                (torch.tensor(source, device=device), torch.tensor(weight, dtype=torch.float32, device=device)[:, None])
            )
        _SLOTS[key] = (who, found)  # the round is kept, so that its id stays its own
    return _SLOTS[key][1]


def mixed(x: Tensor, who: MixingRound) -> Tensor:
    out = x
    for source, weight in _slots(who, x.device):
        out = out + weight.to(x.dtype) * (x[source] - x)
    return out
