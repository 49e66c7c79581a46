"""The mean gradient over replicas, added up in the order of their numbers: its bits depend on who takes part, and on
nothing else."""

from collections.abc import Sequence
from time import perf_counter

import torch
from torch import Tensor

from shardwise.run.runtime.elastic.checksum import checksum
from shardwise.run.runtime.elastic.mesh import PeerMesh

BLOCKS = 64
"""in which a gradient is sealed: as many replicas can deal it out without a new seal"""


class SpoiledGradient(ValueError):
    """A part of `replica`'s gradient is not what it was when its backward pass ended."""

    def __init__(self, replica: int) -> None:
        super().__init__(f"the gradient of replica {replica} changed after its backward pass")
        self.replica = replica


class SealedGradient:
    """A rank's gradient as one row, with a checksum of every block; stays as it is until the step is agreed on."""

    def __init__(self, grads: Sequence[Tensor]) -> None:
        self.flat = torch.cat([grad.detach().reshape(-1) for grad in grads])
        begun = perf_counter()
        self.seals = torch.tensor([checksum(block) for block in self.flat.tensor_split(BLOCKS)])
        self.seconds = perf_counter() - begun
        """spent on checksums"""
        ends = [len(block) for block in self.flat.tensor_split(BLOCKS)]
        self.ends = [0, *torch.tensor(ends).cumsum(0).tolist()]

    def slice_of(self, index: int, members: int) -> tuple[slice, slice]:
        """Elements and blocks of the share that a member adds up."""
        first, end = index * BLOCKS // members, (index + 1) * BLOCKS // members
        return slice(self.ends[first], self.ends[end]), slice(first, end)

    def mean(self, mesh: PeerMesh, members: Sequence[int], me: int) -> Tensor:
        """Each member adds up one share of all gradients, in their order, and hands it to the others."""
        count, mine = len(members), members.index(me)
        elements, blocks = self.slice_of(mine, count)
        parts = {other: torch.empty_like(self.flat[elements]) for other in members if other != me}
        seals = {other: torch.empty_like(self.seals[blocks]) for other in parts}
        shares = {other: self.slice_of(index, count) for index, other in enumerate(members)}
        mesh.swap({o: _bytes(self.seals[shares[o][1]]) for o in parts}, {o: _bytes(seals[o]) for o in parts})
        mesh.swap({o: _bytes(self.flat[shares[o][0]]) for o in parts}, {o: _bytes(parts[o]) for o in parts})
        parts[me], seals[me] = self.flat[elements], self.seals[blocks]
        begun = perf_counter()
        for other in members:
            # modulo 2^64, as the checksum itself
            if checksum(parts[other]) != int(seals[other].sum()):
                raise SpoiledGradient(other)
        self.seconds += perf_counter() - begun
        found = torch.empty_like(self.flat)
        found[elements] = ordered_mean([parts[other] for other in members])
        others = [other for other in members if other != me]
        mesh.swap({o: _bytes(found[elements]) for o in others}, {o: _bytes(found[shares[o][0]]) for o in others})
        return found


def ordered_mean(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total.div_(len(parts))


def _bytes(tensor: Tensor) -> memoryview:
    return memoryview(tensor.view(torch.uint8).numpy())  # type: ignore[arg-type]
