"""Decode steps measured on one H200 against the law: as committed before they were measured, and as it says today."""

import csv
from pathlib import Path

import numpy as np

from shardwise.spec.arch import model_of
from shardwise.spec.load import cluster_of
from shardwise.spec.software import known_stack
from shardwise.step.posttrain.engine import RolloutEngine
from shardwise.step.posttrain.facts import facts
from shardwise.work.case import driven_network

ROOT = Path(__file__).resolve().parents[1] / "evidence" / "posttrain"
SETS = ("decode_h200", "decode_h200_second")
FITTED = ("qwen3-0.6b", "qwen3-8b")
"""of the first set: its constant `whole_reach` was fitted on these"""
Key = tuple[str, str, int, int]


def _timed(name: str) -> dict[Key, float]:
    path = ROOT / f"{name}.csv"
    if not path.exists():
        return {}
    with path.open(encoding="utf-8") as file:
        return {
            (row["kind"], row["model"], int(row["batch"]), int(row["context"])): float(row["seconds"])
            for row in csv.DictReader(file) if row["kind"] == "decode" and float(row["seconds"])
        }  # fmt: skip


def decode_errors() -> dict[str, float | int]:
    """Mean relative errors. Models with experts stand apart: no engine uses PyTorch's grouped GEMMs."""
    cluster = cluster_of("1xh200")
    network = driven_network(cluster, known_stack("megatron-core"))
    before: list[float] = []
    now: list[float] = []
    with_experts: list[float] = []
    for name in SETS:
        said = _timed(f"{name}_predicted")
        for key, seconds in _timed(f"{name}_measured").items():
            _, model, batch, context = key
            if any(kind.experts for kind in model_of(model).kinds):
                with_experts.append(abs(said[key] / seconds - 1.0))
                continue
            before.append(abs(said[key] / seconds - 1.0))
            if name != SETS[0] or model not in FITTED:
                engine = RolloutEngine(model_of(model), cluster, network, facts().engines["torch"], 1)
                found = float(engine.decode_seconds(np.array([batch]), np.array([context]))[0])
                now.append(abs(found / seconds - 1.0))
    return {
        "decode_h200": len(now), "decode_h200_mape": float(np.mean(now)),
        "decode_h200_mape_committed": float(np.mean(before)), "decode_h200_committed": len(before),
        **({"decode_h200_mape_experts": float(np.mean(with_experts))} if with_experts else {}),
    }  # fmt: skip
