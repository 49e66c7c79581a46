"""Runs of optimizers of whole matrices in every layout, in fp64 beside one process, and in fp32 with their messages."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from msgspec.structs import replace
from training import MODELS, Trained, assembled, batch_for, task_of

from shardwise.plugins.optimizers import _rounded, update_rule
from shardwise.run.runtime.seats import RankSeats
from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.run.runtime.train.fork import forked
from shardwise.run.runtime.train.matrices import SplitMatrix, WholeMatrices
from shardwise.run.runtime.train.optimizer import OptimizerSettings
from shardwise.run.runtime.train.task import Task, TrainingOrder, TrainingSettings
from shardwise.run.runtime.verification import Verification
from shardwise.run.runtime.verify import recorded_step, verified
from shardwise.spec.job import optimizer_of
from shardwise.spec.policy import Policy

CPU, RATE = torch.device("cpu"), 1e-3
STEPS = {"muon": 4, "soap": 18, "shampoo": 6, "adafactor": 4, "adamw-8bit": 4}
"""of one run: two new bases of SOAP, three new roots of Shampoo"""
EVERY = {"soap": 8, "shampoo": 2}
"""steps between those, fewer than they have: factors of small matrices must have full rank by then"""
Whole = dict[str, np.ndarray]


@dataclass(frozen=True)
class Cell:
    model: str
    policy: Policy

    @property
    def name(self) -> str:
        degrees = {k: getattr(self.policy, k) for k in ("dp", "tp", "pp", "cp", "ep", "shard_group")}
        words = [f"{k} {v}" for k, v in degrees.items() if v > 1]
        return " ".join([self.model, *words, f"zero {self.policy.zero}", self.policy.matrix_layout or "usual"])


def shared(layout: str, stages: tuple[int, ...]) -> list[tuple[str, Policy]]:
    """Where ranks share matrices."""
    last = stages[-1]
    return [
        *(("llama", Policy(dp=2, zero=zero, matrix_layout=layout)) for zero in stages),
        ("moe", Policy(dp=2, ep=2, zero=1, matrix_layout=layout)),
        ("moe", Policy(dp=2, zero=last, matrix_layout=layout)),
        ("odd", Policy(dp=2, zero=last, matrix_layout=layout)),
        ("gpt", Policy(dp=4, zero=last, shard_group=2, matrix_layout=layout)),
        ("llama", Policy(dp=2, tp=2, zero=last, matrix_layout=layout)),
        ("llama", Policy(pp=2, dp=2, zero=last, matrix_layout=layout)),
        ("llama", Policy(cp=2, dp=2, zero=last, matrix_layout=layout)),
        ("moe", Policy(dp=4, ep=2, zero=last, matrix_layout=layout)),
        ("moe", Policy(dp=2, tp=2, ep=2, etp=2, zero=1, matrix_layout=layout)),
    ]


def cells(name: str, *, few: bool = False) -> list[Cell]:
    """Of an optimizer: every layout it has over data, tensor, pipeline and expert parallelism, ZeRO 0 to 3, HSDP."""
    rule = update_rule(name)
    found = [
        ("llama", Policy(pp=2, zero=0)),
        ("llama", Policy(tp=2, zero=0)),
        ("mqa", Policy(tp=2, zero=0)),
        ("few heads", Policy(tp=4, zero=0)),
        ("llama", Policy(pp=2, vpp=2, schedule="interleaved", dp=2, zero=1)),
    ]
    for layout in rule.layouts:
        if layout == "blockwise":
            found += [
                ("llama", Policy(tp=2, zero=0, matrix_layout=layout)),
                ("llama", Policy(dp=2, tp=2, zero=1, matrix_layout=layout)),
                ("llama", Policy(dp=2, tp=2, zero=3, matrix_layout=layout)),
            ]
            continue
        found += shared(layout, (1, 2, 3) if layout != "owned" else (1, 2))
    if not rule.layouts:
        found += shared("", (1, 2, 3))
    every = [Cell(*each) for each in found]
    return [*every[:: len(every) // 5], every[-1]] if few else every


def task_for(name: str, cell: Cell) -> Task:
    task = task_of(MODELS[cell.model], cell.policy)
    return replace(task, job=replace(task.job, optimizer=optimizer_of(name)))


def settings_for(name: str) -> OptimizerSettings:
    return OptimizerSettings(name=name, nesterov=name == "muon", decay_on="matrices")


@contextmanager
def doubles() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def often(name: str) -> Iterator[None]:
    with (
        patch.object(type(update_rule(name)), "every", EVERY.get(name, 0), create=True),
        patch.object(_rounded, "LEAST", 0),
    ):
        yield


def trained(engine: TrainingEngine, first: int, steps: int) -> None:
    device = engine.world.device
    for step in range(first, steps):
        batch = batch_for(engine, step)
        engine.accumulate(lambda index, batch=batch: tuple(part.to(device) for part in batch(index)))
        engine.update(RATE)


def weights_of(engine: TrainingEngine) -> Trained:
    """This rank's parts of all weights, in the form of `training.assembled`."""
    return Trained(pieces=[
        (s.held.piece.name, s.held.piece.shape, s.held.piece.offsets, s.held.piece.local_shape, s.first,
         local.tensor[s.at : s.at + s.length].clone().cpu().numpy())
        for local in engine.locals()
        for s in local.spans
    ])  # fmt: skip


def weights_after(task: Task, name: str, steps: int, device: torch.device = CPU) -> Trained:
    with doubles(), often(name):
        engine = TrainingEngine(task, device, settings_for(name))
        trained(engine, 0, steps)
        return weights_of(engine)


def recorded(task: Task, name: str, device: torch.device = CPU) -> tuple[Task, Any]:
    """A step in fp32 with all that it sends; experts get as many tokens as predicted."""
    task = replace(task, even_routing=any(kind.experts for kind in task.model.kinds))
    order = TrainingOrder(task=task, settings=TrainingSettings(steps=1, optimizer=settings_for(name)))
    return task, recorded_step(order, device)


@dataclass(frozen=True)
class Proof:
    cell: Cell
    worst: float
    """largest difference of a weight from one process, over all parameters"""
    parameters: int
    """compared"""
    verification: Verification

    @property
    def equal(self) -> bool:
        return self.worst <= 1e-9

    @property
    def bytes_equal(self) -> bool:
        return self.verification.messages_equal and self.verification.memory_error <= 0.02


def proven(name: str, every: Iterable[Cell], seats: RankSeats | None = None) -> Iterator[Proof]:
    """Cells of one number of ranks after the other, on one set of ranks each; `seats`: of ranks over NCCL."""
    by_ranks: dict[int, list[Cell]] = {}
    for cell in every:
        by_ranks.setdefault(cell.policy.gpus, []).append(cell)
    for ranks, mine in by_ranks.items():
        tasks = [task_for(name, cell) for cell in mine]

        def work(_: int, tasks: list[Task] = tasks) -> list[tuple[Trained, tuple[Task, Any]]]:
            device = CPU if seats is None else torch.device("cuda", 0)
            return [(weights_after(task, name, STEPS[name], device), recorded(task, name, device)) for task in tasks]

        for cell, of_ranks in zip(mine, zip(*forked(ranks, work, seats), strict=True), strict=True):
            pieces = [trained for trained, _ in of_ranks]
            task, (recordings, loss) = of_ranks[0][1]
            found = assembled(pieces)
            if update_rule(name).rounds_moments:
                expected = rounded_in_one_process(cell.model, pieces)
            else:
                expected = one_process(name, cell.model, blocks_of(name, cell, pieces))
            assert found.keys() == expected.keys()
            worst = max(float(np.abs(found[key] - expected[key]).max()) for key in expected)
            yield Proof(cell, worst, sum(w.size for w in found.values()), verified(task, recordings, loss))


Blocks = tuple[tuple[str, int, int], ...]
"""(name, axis from the end, parts) of matrices that are updated in pieces"""


def blocks_of(name: str, cell: Cell, pieces: list[Trained]) -> Blocks:
    """What tensor parallelism cuts, where pieces are updated as they are."""
    if cell.policy.matrix_layout != "blockwise" and update_rule(name).exchange_cut == "gather":
        return ()
    found = set()
    for key, shape, _, local, *_ in (piece for trained in pieces for piece in trained.pieces):
        found |= {(key, axis, shape[axis] // local[axis]) for axis in (-2, -1) if len(shape) > 1
                  if local[axis] < shape[axis]}  # fmt: skip
    return tuple(sorted(found))


@cache
def one_process(name: str, model: str, blocks: Blocks) -> Whole:
    cuts = {key: (axis, parts) for key, axis, parts in blocks}
    kept: dict[tuple[str, int, int], dict[str, torch.Tensor]] = {}

    def direction(self: WholeMatrices, matrix: SplitMatrix, piece: torch.Tensor) -> torch.Tensor:
        axis, parts = cuts.get(matrix.held.piece.name, (0, 1))
        found = []
        for index, part in enumerate(piece.view(matrix.piece).chunk(parts, axis)):
            shape = part.shape
            state = kept.setdefault((matrix.held.piece.name, matrix.expert, index), {})
            if not state:
                state |= {
                    key: torch.eye(size[0]) if key.endswith("basis") else torch.zeros(size)
                    for key, size in self.rule.stored(*shape).items()
                }
            found.append(self.rule.direction(part.contiguous(), state, self.steps, self.settings))
        return torch.cat(found, axis)

    with patch.object(WholeMatrices, "_direction", direction):
        return assembled([weights_after(task_for(name, Cell(model, Policy(zero=0))), name, STEPS[name])])


def rounded_in_one_process(model: str, pieces: list[Trained]) -> Whole:
    """AdamW whose moments are rounded behind every step, in blocks of what each rank had of a tensor."""
    runs: dict[str, dict[tuple[int, ...], np.ndarray]] = {}
    for name, shape, offsets, local, first, values in (piece for trained in pieces for piece in trained.pieces):
        places = np.arange(np.prod(shape)).reshape(shape)
        places = places[tuple(slice(o, o + n) for o, n in zip(offsets, local, strict=True))].reshape(-1)
        size = int(np.prod(local[1:])) if ".expert." in name else len(places)
        for start in range(first // size * size, first + len(values), size):
            run = places[max(start, first) : min(start + size, first + len(values))]
            runs.setdefault(name, {})[run[0], run[-1], len(run)] = run
    with doubles():
        settings = replace(settings_for("adamw-8bit"), name="adamw")
        engine = TrainingEngine(task_for("adamw", Cell(model, Policy(zero=0))), CPU, settings)
        for step in range(STEPS["adamw-8bit"]):
            trained(engine, step, step + 1)
            for local, states in zip(engine.locals(), engine.optimizer.states(), strict=True):
                for kind, span in ((kind, span) for kind in states for span in local.spans):
                    whole = states[kind][span.at : span.at + span.length]
                    for run in runs[span.held.piece.name].values():
                        whole[run] = coarse(whole[run], signed=kind == "exp_avg")
        return assembled([weights_of(engine)])


def coarse(values: torch.Tensor, *, signed: bool) -> torch.Tensor:
    """Blocks of 256, each value the nearest of the table times the block's largest, with its sign."""
    table, found = torch.tensor(_rounded.table(signed=signed), dtype=torch.float32), []
    for block in torch.split(values, 256):
        top = block[block.abs().argmax()].float()
        edges, scaled = (table[1:] + table[:-1]).numpy() / 2, (block / (top if top else 1.0)).float().numpy()
        codes = np.maximum(np.searchsorted(edges, scaled), 0 if signed else scaled > 0)
        found.append(table[codes].double() * top)
    return torch.cat(found)
