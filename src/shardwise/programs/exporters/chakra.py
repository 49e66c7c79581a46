"""A step as execution traces of MLCommons Chakra, one file for each rank, as ASTRA-sim reads them.

Field numbers and types are those of the schema (mlcommons/chakra, schema/protobuf/et_def.proto, commit 21585d8); names
of attributes and what `comm_size` means are those of ASTRA-sim's feeder and collectives: of an all-gather it is what
each rank brings.
ASTRA-sim replays compute and computes communication, so compute nodes bear the time without any communication.

Ranks of one pipeline stage do the same, with other partners: their nodes are laid out once, and each rank gets its own
groups and peers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np

from shardwise.arrays import Ints
from shardwise.fabric.calls import PlacedMessage, calls_of
from shardwise.fabric.place import Seats
from shardwise.fabric.price import members_of
from shardwise.programs.exporters.protobuf import bytes_field, delimited, packed_field, text_field, whole_field
from shardwise.spec.policy import IN_LAYERS, Policy
from shardwise.step.simulate.step import Simulation
from shardwise.step.tasks.program import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Program

VERSION = "1.0.0"
"""of Chakra, as its own generator writes it"""
NAME = "shardwise"
GROUPS = "comm_group.json"
COMP, SEND, RECV, COLLECTIVE = 4, 5, 6, 7
COMM_TYPES = {"all_reduce": 0, "all_gather": 2, "broadcast": 5, "all_to_all": 6, "reduce_scatter": 7}
MOST_NODES = 4_000_000
"""in all files: some 400 MB"""
MICRO = 1e6
PHASES = {
    FORWARD: ("forward",), BACKWARD: ("recompute", "backward"), INPUT_GRADIENT: ("recompute", "backward"),
    WEIGHT_GRADIENT: (),
}  # fmt: skip
KIND_NAMES = {FORWARD: "forward", BACKWARD: "backward", INPUT_GRADIENT: "input gradient", WEIGHT_GRADIENT: "weights"}


@dataclass
class TraceNode:
    """`call`: of a node that communicates; `peer_stage` of a send or receive between stages, `hop` of one to the next
    rank of a ring (1) or from the one before (-1)."""

    id: int
    name: str
    kind: int
    needs: list[int]
    micros: int = 0
    size: int = 0
    call: PlacedMessage | None = None
    peer_stage: int = -1
    hop: int = 0
    tag: int = 0

    def buffer_bytes(self) -> int:
        """Of the whole buffer of the collective, as the list of a step's traffic counts it."""
        gathers = self.call is not None and self.call.op == "all_gather" and self.kind == COLLECTIVE
        return self.size * self.call.ranks if gathers and self.call else self.size


def trace_name(rank: int) -> str:
    return f"{NAME}.{rank}.et"


def chakra_files(found: Simulation) -> Iterator[tuple[str, bytes]]:
    """(name, content) of each file, made when it is asked for: one for every rank, then the groups' file."""
    if len(found.pipelines) > 1:
        raise ValueError("chakra: traces are of GPUs that are all alike; leave --straggler out")
    return _encoded(ChakraTraces(found))


def _encoded(traces: "ChakraTraces") -> Iterator[tuple[str, bytes]]:
    for rank in range(traces.found.policy.gpus):
        yield trace_name(rank), traces.encoded(rank)
    yield GROUPS, msgspec.json.encode({str(number): list(members) for members, number in traces.groups.items()})


class ChakraTraces:
    def __init__(self, found: Simulation) -> None:
        self.found = found
        ranks = np.arange(found.policy.gpus)
        self.seats = Seats(found.policy, tuple(found.policy.order.split("-")), ranks, "rank", ranks)
        self.groups: dict[tuple[int, ...], int] = {}
        """ranks -> number, from 1 on: 0 means everybody"""
        calls = calls_of(found.closed.work)
        self._check(calls)
        self.stages = [_StageTrace(found, calls, stage).nodes for stage in range(found.policy.pp)]
        self._pipeline = self.seats.groups("pp")
        self._members: dict[tuple[object, ...], dict[int, Ints]] = {}
        self._named: dict[tuple[object, ...], bytes] = {}

    def _check(self, calls: list[PlacedMessage]) -> None:
        """Counted before anything is laid out."""
        policy = self.found.policy
        tasks = len(self.found.program.rank) / policy.pp
        nodes = policy.gpus * (2 * tasks + 3 * sum(call.count for call in calls) / policy.pp)
        if nodes > MOST_NODES:
            raise ValueError(
                f"chakra: about {nodes:,.0f} nodes in {policy.gpus:,} files; write fewer GPUs or a smaller "
                f"--global-batch, for at most {MOST_NODES:,}"
            )

    @cached_property
    def stage_of(self) -> Ints:
        return self.seats.stage

    def nodes(self, rank: int) -> list[TraceNode]:
        return self.stages[int(self.stage_of[rank])]

    def encoded(self, rank: int) -> bytes:
        head = delimited(text_field(1, VERSION))
        nodes, alike = self.nodes(rank), self._alike[int(self.stage_of[rank])]
        own = ((same, self._own(node, rank)) for same, node in zip(alike, nodes, strict=True))
        return head + b"".join(delimited(same + partners) for same, partners in own)

    @cached_property
    def _alike(self) -> list[list[bytes]]:
        """Of each stage's nodes what is the same on every rank of it."""
        return [[self._static(node) for node in nodes] for nodes in self.stages]

    def _static(self, node: TraceNode) -> bytes:
        found = whole_field(1, node.id) + text_field(2, node.name) + whole_field(3, node.kind)
        found += packed_field(5, node.needs) + (whole_field(7, node.micros) if node.micros else b"")
        found += _attribute("is_cpu_op", whole_field(27, 0))
        if node.call is not None:
            found += _attribute("comm_size", whole_field(9, node.size))
        if node.kind == COLLECTIVE and node.call is not None:
            found += _attribute("comm_type", whole_field(9, COMM_TYPES[node.call.op]))
        return found

    def _own(self, node: TraceNode, rank: int) -> bytes:
        if node.call is None:
            return b""
        if node.kind == COLLECTIVE:
            return self._group_name(node.call, rank)
        peer = self.peer(node, rank)
        ends = (rank, peer) if node.kind == SEND else (peer, rank)
        names = ("comm_src", "comm_dst", "comm_tag")
        return b"".join(
            _attribute(name, whole_field(11, value)) for name, value in zip(names, (*ends, node.tag), strict=True)
        )

    def _group_name(self, call: PlacedMessage, rank: int) -> bytes:
        key = (call.group, call.part, call.ranks, rank)
        if key not in self._named:
            members = tuple(self._group(call)[rank].tolist())
            number = self.groups.setdefault(members, len(self.groups) + 1)
            self._named[key] = _attribute("pg_name", text_field(29, str(number)))
        return self._named[key]

    def peer(self, node: TraceNode, rank: int) -> int:
        if node.peer_stage >= 0:
            return int(self._pipeline[self._pipeline_of[rank], node.peer_stage])
        assert node.call is not None
        members = self._group(node.call)[rank]
        return int(members[(int(np.flatnonzero(members == rank)[0]) + node.hop) % len(members)])

    @cached_property
    def _pipeline_of(self) -> Ints:
        found = np.empty(self.found.policy.gpus, dtype=np.int64)
        found[self._pipeline] = np.arange(len(self._pipeline))[:, None]
        return found

    def _group(self, call: PlacedMessage) -> dict[int, Ints]:
        """Of each rank: the ranks of its group."""
        key = (call.group, call.part, call.ranks)
        if key not in self._members:
            self._members[key] = {int(rank): row for row in members_of(self.seats, call) for rank in row}
        return self._members[key]


def _attribute(name: str, value: bytes) -> bytes:
    return bytes_field(10, text_field(1, name) + value)


@dataclass
class _StageTrace:
    """The nodes of one stage: its tasks in order, what they receive, exchange and send, then the end of the step."""

    found: Simulation
    calls: list[PlacedMessage]
    stage: int
    nodes: list[TraceNode] = field(default_factory=list)
    _last: int = -1
    """the compute node before, which the next one waits for"""
    _lanes: dict[str, int] = field(default_factory=dict)
    """the last node of each lane that runs beside compute"""
    _rounded: dict[int, float] = field(default_factory=dict)
    """bytes of each call that rounding has left over; -1: microseconds of compute"""

    def __post_init__(self) -> None:
        program = self.program
        mine = np.flatnonzero(program.rank == self.stage).tolist()
        self._tasks = self._count(mine)
        self._receivers = self._receiving()
        ends: dict[int, int] = {}
        for task in mine:
            before = self._last
            self._task(task, before)
            ends[int(program.stage[task])] = self._last
        self._end_of_step(ends)

    @property
    def program(self) -> Program:
        return self.found.program

    @property
    def policy(self) -> Policy:
        return self.found.policy

    def _count(self, mine: list[int]) -> dict[tuple[int, str], int]:
        """(piece, phase) -> tasks in which it happens."""
        found: dict[tuple[int, str], int] = {}
        for task in mine:
            for phase in PHASES[int(self.program.kind[task])]:
                key = (int(self.program.stage[task]), phase)
                found[key] = found.get(key, 0) + 1
        return found

    def _receiving(self) -> dict[int, list[int]]:
        """Task -> tasks on other ranks that wait for its result."""
        found: dict[int, list[int]] = {}
        for task in np.flatnonzero(self.program.crosses).tolist():
            found.setdefault(int(self.program.needs[task]), []).append(task)
        return found

    def _task(self, task: int, before: int) -> None:
        program, piece, kind = self.program, int(self.program.stage[task]), int(self.program.kind[task])
        name = f"{KIND_NAMES[kind]} {int(program.micro_batch[task])} piece {piece}"
        first = [] if before < 0 else [before]
        if program.crosses[task]:
            first.append(self._received(task, name))
        calls = [
            call for phase in PHASES[kind] for call in self._of(piece, phase) if call.op != "send" or call.target < 0
        ]
        between = [each for call in calls if call.lane in IN_LAYERS for each in self._sizes(call, piece)]
        for call in calls:
            if call.lane not in IN_LAYERS:
                beside = [self._beside(call, size, before) for _, size in self._sizes(call, piece)]
                first += beside[-1:] if call.op == "all_gather" else []
        seconds = self._compute_s(kind, piece) / (len(between) + 1)
        at = self._compute(name, first, seconds)
        for call, size in between:
            at = self._compute(name, self._exchange(call, size, [at]), seconds)
        self._last = at
        for receiver in self._receivers.get(task, ()):
            self._sent(task, receiver, name)

    def _of(self, piece: int, phase: str) -> list[PlacedMessage]:
        return [c for c in self.calls if c.stage == self.stage and c.piece == piece and c.phase == phase]

    def _sizes(self, call: PlacedMessage, piece: int) -> list[tuple[PlacedMessage, int]]:
        """The messages of a call in one task; together, over all tasks, they are all of its bytes."""
        return [(call, size) for size in self._cut(call, call.count / self._tasks[piece, call.phase])]

    def _cut(self, call: PlacedMessage, times: float) -> list[int]:
        count = max(round(times), 1)
        each = call.bytes * times / count / (call.ranks if call.op == "all_gather" else 1)
        return [self._whole(id(call), each) for _ in range(count)]

    def _whole(self, key: int, value: float) -> int:
        """Rounded so that what is left over goes to the next."""
        wanted = value + self._rounded.get(key, 0.0)
        found = max(round(wanted), 0)
        self._rounded[key] = wanted - found
        return found

    def _compute_s(self, kind: int, piece: int) -> float:
        """Without what communication adds."""
        costs, back = self.found.costs, kind != FORWARD
        seconds = {
            FORWARD: costs.forward, BACKWARD: costs.backward, INPUT_GRADIENT: costs.input_gradient,
            WEIGHT_GRADIENT: costs.weight_gradient,
        }[kind][piece]  # fmt: skip
        waits = sum(float(s.seconds[back][piece] * s.stops[piece]) for s in costs.streams.values())
        return max(float(seconds) - (0.0 if kind == WEIGHT_GRADIENT else waits), 0.0)

    def _add(self, name: str, kind: int, needs: list[int]) -> TraceNode:
        node = TraceNode(len(self.nodes), name, kind, sorted(set(needs)))
        self.nodes.append(node)
        return node

    def _compute(self, name: str, needs: list[int], seconds: float) -> int:
        node = self._add(name, COMP, needs)
        node.micros = self._whole(-1, seconds * MICRO)
        return node.id

    def _exchange(self, call: PlacedMessage, size: int, needs: list[int]) -> list[int]:
        """The nodes of one message, for the next compute to wait for."""
        name = f"{call.axis} {call.op}"
        if call.op != "send":
            node = self._add(name, COLLECTIVE, needs)
            node.call, node.size = call, size
            return [node.id]
        tag = len(self.program.rank) + len(self.nodes)
        found = []
        for kind, hop in ((SEND, 1), (RECV, -1)):
            node = self._add(name, kind, needs)
            node.call, node.size, node.hop, node.tag = call, size, hop, tag
            found.append(node.id)
        return found

    def _beside(self, call: PlacedMessage, size: int, before: int) -> int:
        """On a lane of its own: behind the last on it, and not before the task before began."""
        needs = [self._lanes[call.lane]] if call.lane in self._lanes else []
        (found,) = self._exchange(call, size, [*needs, *([before] if before >= 0 else [])])
        self._lanes[call.lane] = found
        return found

    def _transfer(self, task: int, source: int) -> PlacedMessage:
        """What the task `source` sends to the rank of `task`."""
        program = self.program
        phase = "forward" if program.kind[source] == FORWARD else "backward"
        wanted = int(program.rank[source]), int(program.stage[source]), phase, int(program.rank[task])
        return next(c for c in self.calls if (c.stage, c.piece, c.phase, c.target) == wanted)

    def _received(self, task: int, name: str) -> int:
        source = int(self.program.needs[task])
        return self._passed(
            RECV, f"receive for {name}", self._transfer(task, source), int(self.program.rank[source]), task
        )

    def _sent(self, task: int, receiver: int, name: str) -> int:
        return self._passed(SEND, f"send of {name}", self._transfer(receiver, task), int(self.program.rank[receiver]),
                            receiver)  # fmt: skip

    def _passed(self, kind: int, name: str, call: PlacedMessage, peer: int, tag: int) -> int:
        # a receive is posted in the order of the tasks: a simulator with one network card would wait for a later one
        node = self._add(name, kind, [self._last] if self._last >= 0 else [])
        node.call, node.size, node.peer_stage, node.tag = call, round(call.bytes), peer, tag
        return node.id

    def _end_of_step(self, ends: dict[int, int]) -> None:
        """Gradients of each piece behind its last backward, the update behind all of them, then parameters."""
        once = [call for call in self.calls if call.stage == self.stage and call.phase in ("step", "update")]
        # by pieces, which two stages that hold the same ones have in other chunks
        once.sort(key=lambda call: call.piece)
        reduced: list[int] = []
        for call in once:
            if call.lane != "param":
                needs = [ends.get(call.piece, self._last)]
                reduced += [self._behind(call, size, needs) for size in self._cut(call, call.count)]
        at = self._compute("optimizer", [self._last, *reduced], float(self.found.costs.optimizer_s[self.stage]))
        for call in once:
            if call.lane == "param":
                for size in self._cut(call, call.count):
                    self._behind(call, size, [at])

    def _behind(self, call: PlacedMessage, size: int, needs: list[int]) -> int:
        (found,) = self._exchange(call, size, [*needs, *([self._lanes[call.lane]] if call.lane in self._lanes else [])])
        self._lanes[call.lane] = found
        return found
