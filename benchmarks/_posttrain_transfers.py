"""Published transfers of weights against the law of their path, each by constants that saw no row of its model.

A path belongs to a program, and most programs publish one table: leaving a whole source out would leave a path without
any row. So all rows of a model are left out at once, of every source.
"""

import csv
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from scipy.optimize import least_squares

from shardwise.arrays import Floats
from shardwise.spec.arch import model_of
from shardwise.spec.load import cluster_of
from shardwise.spec.software import known_stack
from shardwise.step.posttrain.engine import RolloutEngine
from shardwise.step.posttrain.facts import TransferFacts, facts
from shardwise.step.posttrain.transfer import Senders, transfer_seconds
from shardwise.work.case import driven_network

ROOT = Path(__file__).resolve().parents[1] / "evidence" / "posttrain"
PATHS = {
    ("checkpoint-engine", "host-broadcast"): "host-broadcast", ("checkpoint-engine", "host-p2p"): "host-broadcast",
    ("verl-delta", "broadcast"): "verl-broadcast", ("verl-delta", "delta"): "verl-delta",
    ("verl-7060", "broadcast"): "verl-broadcast", ("verl-7060", "delta"): "verl-delta",
    ("nemo-rl-reshard", "reshard"): "nemo-rl-reshard", ("nemo-rl-nixl", "broadcast"): "nemo-rl-broadcast",
}  # fmt: skip
"""rows of sync.csv whose path a program of ours takes"""
START = {"fixed_s": 1.0, "rate": 2e10, "gpu_rate": 2e10, "expert_s": 1e-4, "host_rate": 5e9}
"""where a fit begins: a second, links of 20 GB/s, a hundred kernels a second and a pageable copy"""
SHRUNK = 0.1
SHARED = ("expert_s", "host_rate")
FITTED_ON_STEPS = ("nemo-rl-broadcast", "nemo-rl-ipc")


@dataclass(frozen=True)
class Sent:
    path: str
    row: dict[str, str]
    engine: RolloutEngine
    senders: Senders

    @property
    def key(self) -> tuple[str, str]:
        """What is left out at once."""
        return self.row["source"], self.row["model"]

    @property
    def seconds(self) -> float:
        low = float(self.row["seconds"])
        return (low + float(self.row["seconds_high"] or low)) / 2

    def error(self, facts_: TransferFacts) -> float:
        return transfer_seconds(facts_, self.engine, self.senders) / self.seconds - 1.0


def every_row() -> list[dict[str, str]]:
    with (ROOT / "sync.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def sent_rows(rows: list[dict[str, str]]) -> list[Sent]:
    found = []
    for row in rows:
        path = PATHS.get((row["source"], row["path"]))
        try:
            model = model_of(row["model"]) if path else None
        except ValueError:
            continue
        if path is None or model is None:
            continue
        gpus, host = int(row["rollout_gpus"]), {"h800": "h800", "h20": "h20"}.get(row["gpu"], "")
        name = f"{gpus // 8}x8x{host}" if host and gpus >= 16 else f"{gpus}x{host}" if host else (
            f"dgx-h100:{gpus}" if row["gpu"] == "h100" else f"gb200-nvl72:{gpus}")  # fmt: skip
        cluster = cluster_of(name)
        ep = re.search(r"veomni ep(\d+)", row["train_layout"])
        engine = RolloutEngine(
            model, cluster, driven_network(cluster, known_stack("megatron-core")), facts().engines["vllm"],
            int(row["rollout_tp"] or 1), "fp8" if row["precision"] == "fp8" else "bf16",
        )  # fmt: skip
        senders = Senders(int(row["train_gpus"]), row["offload"] == "1", int(ep[1]) if ep else 1)
        found.append(Sent(path, row, engine, senders))
    return found


def fitted(names: list[str], rows: list[Sent]) -> dict[str, TransferFacts]:
    """Constants that paths have, each path's own but what an engine takes to load an expert's matrix and a host to copy
    to: these are the same for paths that pass through the same hands. Which a path has is known from its program."""
    begun = {name: facts().transfers[name] for name in names}
    keys = list(dict.fromkeys(
        ("" if field in SHARED and begun[name].rate else name, field)
        for name in names for field in START if getattr(begun[name], field)
    ))  # fmt: skip
    begin = np.log([START[field] for _, field in keys])

    def paths(values: Floats) -> dict[str, TransferFacts]:
        known = dict(zip(keys, np.exp(values).tolist(), strict=True))
        return {
            name: replace(path, **{
                field: known[key] for field in START if getattr(path, field)
                for key in (("", field), (name, field)) if key in known
            })
            for name, path in begun.items()
        }  # fmt: skip

    def off(values: Floats) -> Floats:
        tried = paths(values)
        return np.asarray([*(np.log1p(each.error(tried[each.path])) for each in rows), *(SHRUNK * (values - begin))])

    return paths(least_squares(off, begin, loss="soft_l1", f_scale=0.2).x)


def left_out(rows: list[Sent]) -> list[float]:
    """Errors, in the rows' order; of paths that are fitted on steps, those steps are what they saw."""
    names = list(dict.fromkeys(each.path for each in rows if each.path not in FITTED_ON_STEPS))
    errors = {}
    for key in dict.fromkeys(each.key for each in rows):
        seen = [each for each in rows if each.key != key and each.path in names]
        paths = facts().transfers | fitted(names, seen)
        errors |= {place: each.error(paths[each.path]) for place, each in enumerate(rows) if each.key == key}
    return [errors[place] for place in range(len(rows))]


def main() -> int:
    rows = sent_rows(every_row())
    names = list(dict.fromkeys(each.path for each in rows if each.path not in FITTED_ON_STEPS))
    for name, path in fitted(names, [each for each in rows if each.path in names]).items():
        print(name, {field: f"{getattr(path, field):.3g}" for field in START if getattr(path, field)})
    errors = left_out(rows)
    for each, error in zip(rows, errors, strict=True):
        row = each.row
        print(*each.key, row["path"], f"{each.seconds:.2f} s", f"{error:+.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
