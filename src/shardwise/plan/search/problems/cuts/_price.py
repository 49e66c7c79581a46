"""Seconds and bytes of a cut: kernels by the project's curves, collectives by its network, nothing overlapped."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwise.cost.calibrate.overlay import curve_with, stack_with
from shardwise.cost.calibrate.profile import Profile
from shardwise.cost.gpu import attention_seconds, memory_seconds
from shardwise.plan.search.problems.cuts._graph import AttentionKernel, CutChoice, CutGraph, Input
from shardwise.plan.search.problems.cuts._layouts import Arc, Layout, buffer_share, collective_of, trees
from shardwise.plugins.collectives import collective
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Precision
from shardwise.spec.software import Stack
from shardwise.step.estimate.layers import gemm_passes
from shardwise.step.estimate.machine import Machine
from shardwise.work.case import driven_network
from shardwise.work.ops import element_bytes

Assignment = tuple[int, ...]
"""the choice of every operation"""
Wanted = tuple[frozenset[Layout], bool]
"""layouts in which a value is read, and whether the replicated one is read again in the backward pass"""


@dataclass(frozen=True)
class CutCollective:
    """One collective of a plan."""

    phase: str
    """forward, backward (of a gradient), again (a forward gather repeated in the backward pass) or weights"""
    tensor: str
    """or the matrix whose weight gradient is summed"""
    op: str
    start: str
    end: str
    bytes: float
    """the buffer, as plugins/collectives/_contract.py counts it"""
    seconds: float
    ranks: int

    @property
    def sent_bytes(self) -> float:
        """What each rank sends: ring, or pairwise exchange."""
        algorithm = "pairwise" if self.op == "all_to_all" else "ring"
        return float(collective(algorithm).sent(self.op, self.ranks, self.ranks)[0]) * self.bytes


@dataclass(frozen=True)
class CutPrice:
    assignment: Assignment
    compute_s: float
    moves: tuple[CutCollective, ...]
    weight_bytes: float
    """of the block's weights on one rank"""

    @cached_property
    def seconds(self) -> float:
        return self.compute_s + sum(move.seconds for move in self.moves)

    @cached_property
    def sent_bytes(self) -> float:
        return sum(move.sent_bytes for move in self.moves)


def machine_at(
    cluster: Cluster, stack: Stack, precision: Precision, ranks: int, stride: int, profile: Profile | None = None
) -> Machine:
    """What prices a group of `ranks` GPUs, neighbours `stride` apart, for products of no model."""
    stack = stack_with(stack, profile)
    return Machine(
        curve=curve_with(cluster.gpu, profile), network=driven_network(cluster, stack, profile), stack=stack,
        precision=precision, sizes={"tp": np.asarray(ranks)}, strides={"tp": np.asarray(stride)},
    )  # fmt: skip


class CutCosts:
    """A graph on a machine: what every choice costs by itself, and what every tensor costs between choices."""

    def __init__(self, graph: CutGraph, machine: Machine, accumulate: int = 1) -> None:
        """accumulate: micro-batches whose weight gradients are added up before they are all-reduced."""
        self.graph, self.machine, self.accumulate = graph, machine, accumulate
        self.regather = not machine.stack.memory.gathered_inputs_saved
        self._element = element_bytes(machine.precision)
        self._spread: dict[tuple[str, Layout, Wanted], tuple[float, tuple[Arc, ...]]] = {}
        self._gathered: dict[tuple[str, Layout, frozenset[Layout]], tuple[float, tuple[Arc, ...]]] = {}
        self.compute = [[self._kernels(choice) for choice in op.choices] for op in graph.ops]
        self.own = [
            [kernels + self._summing(choice)[1] for kernels, choice in zip(row, op.choices, strict=True)]
            for row, op in zip(self.compute, graph.ops, strict=True)
        ]
        self.bytes = [[choice.weights * machine.precision.param_bytes for choice in op.choices] for op in graph.ops]

    def share_layout_changes(self, other: "CutCosts") -> None:
        """Takes over, and goes on filling, what another graph of the same tensors has looked up."""
        self._spread, self._gathered = other._spread, other._gathered

    def choice(self, place: int, index: int) -> CutChoice:
        return self.graph.ops[place].choices[index]

    def wanted(self, tensor: str, chosen: Sequence[int]) -> tuple[Wanted, frozenset[Layout]]:
        """What its consumers' choices ask of a tensor: layouts of the value, and those of the gradients they give."""
        return together(self.reader(tensor, user, index) for user, index in enumerate(chosen))

    def reader(self, tensor: str, user: int, index: int) -> Input:
        place, slot = self.graph.consumers[tensor][user]
        return self.choice(place, index).inputs[slot]

    def between(self, tensor: str, produced: int, chosen: Sequence[int]) -> float:
        """Seconds a tensor's value and gradient spend in collectives."""
        given = self.choice(self.graph.producer[tensor], produced).output
        assert given is not None
        wanted, gradients = self.wanted(tensor, chosen)
        return self.spread(tensor, given.value, wanted)[0] + self.gathered(tensor, given.gradient, gradients)[0]

    def spread(self, tensor: str, start: Layout, wanted: Wanted) -> tuple[float, tuple[Arc, ...]]:
        """The cheapest way from the layout a value is computed in to all that are read."""
        key = (tensor, start, wanted)
        if key not in self._spread:
            layouts, kept = wanted
            again = 2.0 if kept and self.regather else 1.0
            self._spread[key] = self._cheapest(tensor, start, layouts, False, again)
        return self._spread[key]

    def gathered(self, tensor: str, end: Layout, given: frozenset[Layout]) -> tuple[float, tuple[Arc, ...]]:
        """The cheapest way to add up gradients from their layouts into the one the producer needs."""
        key = (tensor, end, given)
        if key not in self._gathered:
            self._gathered[key] = self._cheapest(tensor, end, given, True, 1.0)
        return self._gathered[key]

    def detail(self, assignment: Assignment) -> CutPrice:
        """One assignment with its collectives, in the order in which they run."""
        graph = self.graph
        compute = sum(self.compute[place][index] for place, index in enumerate(assignment))
        forward: list[CutCollective] = []
        backward: list[CutCollective] = []
        for name in graph.tensors:
            given = self.choice(graph.producer[name], assignment[graph.producer[name]]).output
            assert given is not None
            wanted, gradients = self.wanted(name, [assignment[place] for place, _ in graph.consumers[name]])
            spread = self.spread(name, given.value, wanted)[1]
            forward += [self._move("forward", name, arc) for arc in spread if collective_of(arc)]
            again = spread if wanted[1] and self.regather else ()
            late = [self._move("again", name, arc) for arc in again if collective_of(arc) == "all_gather"]
            arcs = self.gathered(name, given.gradient, gradients)[1]
            late += [self._move("backward", name, arc) for arc in arcs if collective_of(arc)]
            backward = [*late, *backward]
        sums = [self._sum(graph.ops[place].name, self.choice(place, index)) for place, index in enumerate(assignment)]
        moves = [*forward, *backward, *(move for move in sums if move is not None)]
        held = sum(self.bytes[place][index] for place, index in enumerate(assignment))
        return CutPrice(assignment, compute, tuple(moves), held)

    def seconds_of(self, move: CutCollective) -> float:
        """The time a collective of another place would take here."""
        times = self.accumulate if move.phase == "weights" else 1
        return self._seconds(move.op, move.bytes * times) / times

    def _cheapest(
        self, tensor: str, root: Layout, others: frozenset[Layout], toward_root: bool, again: float
    ) -> tuple[float, tuple[Arc, ...]]:
        legal = {*self.graph.tensors[tensor].layouts(self.graph.ranks), "partial"}
        best: tuple[float, tuple[Arc, ...]] = (float("inf"), ())
        for arcs in trees(root, others, toward_root):
            if all(node in legal for arc in arcs for node in arc):
                seconds = sum(
                    self._arc_seconds(tensor, arc) * (again if collective_of(arc) == "all_gather" else 1.0)
                    for arc in arcs
                )
                if seconds < best[0]:
                    best = (seconds, arcs)
        return best

    def _arc_seconds(self, tensor: str, arc: Arc) -> float:
        op = collective_of(arc)
        return 0.0 if op is None else self._seconds(op, self._buffer(tensor, op))

    def _buffer(self, tensor: str, op: str) -> float:
        held = self.graph.tensors[tensor]
        return self._element * held.rows * held.width * buffer_share(op, self.graph.ranks)

    def _seconds(self, op: str, size: float) -> float:
        return float(self.machine.collective(op, "tp", size))

    def _move(self, phase: str, tensor: str, arc: Arc) -> CutCollective:
        op = collective_of(arc)
        assert op is not None
        size = self._buffer(tensor, op)
        return CutCollective(phase, tensor, op, *arc, size, self._seconds(op, size), self.graph.ranks)

    def _sum(self, matrix: str, choice: CutChoice) -> CutCollective | None:
        size, seconds = self._summing(choice)
        if not size:
            return None
        return CutCollective("weights", matrix, "all_reduce", "partial", "replicated", size, seconds, self.graph.ranks)

    def _summing(self, choice: CutChoice) -> tuple[float, float]:
        """Bytes of weight gradient to all-reduce and the seconds that takes, per micro-batch."""
        if not choice.summed:
            return 0.0, 0.0
        size = choice.summed * self.machine.precision.grad_comm_bytes
        return size / self.accumulate, self._seconds("all_reduce", size) / self.accumulate

    def _kernels(self, choice: CutChoice) -> float:
        seconds = 0.0
        if choice.gemm is not None:
            seconds += sum(float(part) for part in gemm_passes(choice.gemm, self.machine))
        if choice.attended is not None:
            seconds += self._attention(choice.attended)
        if choice.pointwise is not None:
            passes = self.machine.stack.kernels.pointwise_passes
            for moved in (choice.pointwise.forward_bytes, choice.pointwise.backward_bytes):
                seconds += float(memory_seconds(self.machine.curve, float(moved) * passes))
        return seconds

    def _attention(self, work: AttentionKernel) -> float:
        """Forward two products, backward five: three of the keys' width, two of the values'."""
        stack = self.machine.stack
        seconds = 0.0
        for keys, values, backward in ((1, 1, False), (3, 2, True)):
            flops = 2.0 * work.scores * (keys * work.score_width + values * work.value_width)
            seconds += float(
                attention_seconds(self.machine.curve, flops, work.block, work.score_width, work.groups,
                                  backward=backward, kernel=stack.kernels.attention_kernel)
            )  # fmt: skip
        return seconds / stack.kernels.attention_efficiency


def together(readers: Iterable[Input]) -> tuple[Wanted, frozenset[Layout]]:
    asked = tuple(readers)
    kept = any(reader.kept for reader in asked if reader.value == "replicated")
    return (frozenset(r.value for r in asked), kept), frozenset(r.gradient for r in asked)
