"""How far a policy is from what was ever measured: the published run most like it, and where the two differ.

A distance counts doublings: one for each factor of two in a degree, the GPUs, the micro-batch or the sequence, two for
another GPU, for parameters that are gathered (ZeRO 3) or not, for experts or none, one for full recompute or none.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from shardwise import catalog
from shardwise.arrays import Floats
from shardwise.spec.policy import Policy
from shardwise.work.case import Case

MEASURED = Path(catalog.__file__).parent / "measured" / "published.csv"
READ = (
    "source", "model", "gpu", "gpus", "tp", "pp", "vpp", "cp", "ep", "micro_batch", "seq", "zero_stage_or_fsdp",
    "moe_experts", "recompute",
)  # fmt: skip
COUNTED = ("gpus", "tp", "pp", "cp", "ep", "micro_batch", "seq")
WORDS = {
    "gpus": "{} GPUs", "seq": "sequences of {}", "micro_batch": "micro-batches of {}",
    "pp": "pp x vpp = {}",
}  # fmt: skip
SWITCHED = (("zero_3", 2.0), ("experts", 2.0), ("full_recompute", 1.0))
OTHER_GPU = 2.0


@dataclass(frozen=True)
class MeasuredRun:
    source: str
    model: str
    gpu: str
    gpus: int


@dataclass(frozen=True)
class NearestRun:
    run: MeasuredRun
    distance: float
    """doublings"""
    unlike: tuple[str, ...]
    """where the policy differs"""
    row: int
    """of the table, its first line not counted"""

    def __str__(self) -> str:
        name = f"{self.run.model} on {self.run.gpus:,} {self.run.gpu} ({self.run.source})"
        return f"{name}; differs: {', '.join(self.unlike)}" if self.unlike else name


@dataclass(frozen=True)
class _Table:
    runs: tuple[MeasuredRun, ...]
    counted: Floats
    """runs x COUNTED, log 2; NaN where a run does not say"""
    switched: Floats
    """runs x SWITCHED"""


def nearest_run(case: Case, policy: Policy, *, without: str = "") -> NearestRun:
    """`without`: a source whose runs are left out."""
    return nearest_runs(case, policy, 1, without=without)[0]


def nearest_runs(case: Case, policy: Policy, count: int, *, without: str = "") -> list[NearestRun]:
    """The nearest first."""
    table = _measured()
    counted = np.log2([
        policy.gpus, policy.tp, policy.pp * policy.vpp, policy.cp, policy.ep, policy.micro_batch, case.job.seq,
    ])  # fmt: skip
    experts = any(kind.experts for kind in case.model.kinds)
    switched = np.array([policy.zero == 3, experts, policy.recompute == "full"], dtype=np.float64)
    apart = np.nan_to_num(np.abs(table.counted - counted))
    other = np.array([run.gpu != case.cluster.gpu.name for run in table.runs])
    turned = np.abs(table.switched - switched) * [weight for _, weight in SWITCHED]
    distance = apart.sum(axis=1) + turned.sum(axis=1) + OTHER_GPU * other
    if without:
        distance[[run.source == without for run in table.runs]] = np.inf
    return [
        NearestRun(table.runs[row], float(distance[row]), _unlike(case, counted, switched, table, int(row)), int(row))
        for row in np.argsort(distance, kind="stable")[:count]
    ]


def _unlike(case: Case, counted: Floats, switched: Floats, table: _Table, row: int) -> tuple[str, ...]:
    found = [case.cluster.gpu.name] if table.runs[row].gpu != case.cluster.gpu.name else []
    for name, here, there in zip(COUNTED, counted, table.counted[row], strict=True):
        if np.isfinite(there) and here != there:
            found.append(WORDS.get(name, name + " {}").format(f"{round(2**here):,}"))
    for (name, _), here, there in zip(SWITCHED, switched, table.switched[row], strict=True):
        if here != there:
            found.append(("" if here else "no ") + name.replace("_", " ").replace("zero", "ZeRO"))
    return tuple(found)


@cache
def _measured() -> _Table:
    with MEASURED.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        places = [(name, place) for place, name in enumerate(next(lines)) if name in READ]
        rows = [{name: line[place] for name, place in places} for line in lines]
    names = {name: catalog.resolve("gpus", name) for name in {row["gpu"] for row in rows}}
    runs = tuple(MeasuredRun(r["source"], r["model"], names[r["gpu"]], int(r["gpus"])) for r in rows)
    counted = [
        [_degree(r, "gpus"), _degree(r, "tp"), _degree(r, "pp") * _degree(r, "vpp"), _degree(r, "cp"),
         _degree(r, "ep"), _number(r, "micro_batch"), _number(r, "seq")]
        for r in rows
    ]  # fmt: skip
    switched = [["3" in r["zero_stage_or_fsdp"], bool(r["moe_experts"]), r["recompute"] == "full"] for r in rows]
    return _Table(runs, np.log2(np.array(counted)), np.array(switched, dtype=np.float64))


def _degree(row: dict[str, str], name: str) -> float:
    """1 where none is stated."""
    return max(_number(row, name), 1.0) if row[name] else 1.0


def _number(row: dict[str, str], name: str) -> float:
    return float(row[name]) if row[name] else np.nan
