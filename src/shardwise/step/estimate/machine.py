"""What turns the work of policies into seconds: one machine for all of a case."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Ints
from shardwise.cost.gpu import Curve
from shardwise.cost.network import DistinctGroups, Law, Network, distinct
from shardwise.spec.job import Precision
from shardwise.spec.software import Stack
from shardwise.step.estimate.dispatch import between_nodes
from shardwise.work.experts import fullest_share
from shardwise.work.layout import Numbers
from shardwise.work.ops import Value
from shardwise.work.runs import Runs


@dataclass(frozen=True)
class Machine:
    """Kernel curves, the placed network, and the software's constants."""

    curve: Curve
    network: Network
    stack: Stack
    precision: Precision
    sizes: Mapping[str, Ints]
    strides: Mapping[str, Ints]
    groups: dict[tuple[int, int], tuple[DistinctGroups, Numbers | Ints, Ints]] = field(default_factory=dict)
    """those that collectives ran over so far, by the identities of the arrays that tell sizes and strides: these are
    kept with them, so that their identities stay theirs"""
    laws: dict[tuple[str, int, int], Law] = field(default_factory=dict)
    """by operation and group: the same for every message"""

    @property
    def narrow(self) -> bool:
        """Whether products take eight bits or fewer."""
        return self.precision.compute in ("fp8", "fp4")

    def of_runs(self, runs: Runs) -> "Machine":
        """The same for the first policy of each run."""
        if runs.of is None:
            return self
        sizes, strides = ({axis: column[runs.first] for axis, column in table.items()}
                          for table in (self.sizes, self.strides))  # fmt: skip
        return replace(self, sizes=sizes, strides=strides, groups={}, laws={})

    def collective(self, op: str, axis: str, bytes_: Value) -> Numbers:
        """Seconds of one collective over a whole axis."""
        return self.over(op, bytes_, self.sizes[axis], self.strides[axis])

    def fullest_share(self) -> Value:
        """Of the expert ranks, where the machine has some."""
        return fullest_share(self.stack, self.sizes["ep"]) if "ep" in self.sizes else 1.0

    def boundary_s(self, op: str) -> Numbers:
        """What the messages of a tensor-parallel ring take at the boundary of a node, if it passes one."""
        rounds = 2.0 if op == "all_reduce" else 1.0
        seconds = rounds * (self.sizes["tp"] - 1.0) * self.network.boundary_message_s
        return np.where(self.leaves_node("tp"), seconds, 0.0)

    def leaves_node(self, axis: str) -> NDArray[np.bool_]:
        return between_nodes(self.network.cluster, self.sizes[axis], self.strides[axis])

    def over(self, op: str, bytes_: Value, size: Numbers | Ints, stride: Ints) -> Numbers:
        """Seconds of one collective over a part of an axis."""
        where = id(size), id(stride)
        if where not in self.groups:
            self.groups[where] = distinct(size, stride), size, stride
        if (op, *where) not in self.laws:
            self.laws[op, *where] = self.network.law_of(op, self.groups[where][0])
        return self.laws[op, *where].seconds(bytes_)
