"""Fit the constants of decode kernels (catalog/decode.toml) on published tables; print the error on shapes held out.

`python evidence/fit_decode.py` prints the table; `--write` renews the file. The rows are a sample of AIConfigurator's
(Apache-2.0), kernels as vLLM calls them, in evidence/posttrain/decode.csv. Held out: heads of attention, widths of
experts, in five folds by a fixed rule; an all-reduce has three constants for 48 rows and is not held out.
"""

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from shardwise.arrays import Floats
from shardwise.cost.decode import DecodeLaw, all_reduce_seconds, attention_seconds, experts_seconds
from shardwise.spec.gpu import Gpu
from shardwise.spec.hardware import gpu_of

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT / "evidence" / "posttrain" / "decode.csv"
OUT = ROOT / "src" / "shardwise" / "catalog" / "decode.toml"
FOLDS = 5
START = {
    "attention": {"attention_floor_s": 1e-5, "attention_reach": 0.9, "attention_head_s": 2e-9,
                  "attention_split_s": 5e-7},
    "experts": {"experts_floor_s": 2e-5, "experts_reach": 1.5, "experts_spread": 1.0, "experts_rate": 0.3,
                "experts_rows": 32.0, "experts_slice": 100.0},
    "all_reduce": {"reduce_floor_s": 4e-6, "reduce_rank_s": 1e-7, "reduce_reach": 0.5},
}  # fmt: skip
Row = dict[str, str]


def columns(rows: list[Row], *names: str) -> list[Floats]:
    return [np.array([float(row[name]) for row in rows]) for name in names]


def predicted(kind: str, gpu: Gpu, law: DecodeLaw, rows: list[Row]) -> Floats:
    if kind == "attention":
        batch, context, heads, kv, dim = columns(rows, "batch", "context", "heads", "kv_heads", "width")
        return np.asarray(attention_seconds(gpu, law, batch, context, heads, kv, dim))
    if kind == "experts":
        tokens, hidden, width, top_k, count = columns(rows, "batch", "hidden", "width", "top_k", "experts")
        return np.asarray(experts_seconds(gpu, law, tokens, hidden, width, top_k, count))
    sent, ranks = columns(rows, "bytes", "ranks")
    return np.asarray(all_reduce_seconds(gpu, law, sent, ranks))


def fitted(kind: str, gpu: Gpu, rows: list[Row], law: DecodeLaw) -> DecodeLaw:
    names, start = list(START[kind]), np.log(list(START[kind].values()))
    (measured,) = columns(rows, "seconds")

    def off(values: Floats) -> Floats:
        trial = changed(law, dict(zip(names, np.exp(values).tolist(), strict=True)))
        return np.asarray(np.log(predicted(kind, gpu, trial, rows) / measured))

    found = least_squares(off, start, loss="soft_l1", f_scale=0.1)
    return changed(law, {name: float(f"{value:.4g}") for name, value in zip(names, np.exp(found.x), strict=True)})


def changed(law: DecodeLaw, values: dict[str, float]) -> DecodeLaw:
    return DecodeLaw(**{name: values.get(name, getattr(law, name)) for name in DecodeLaw.__struct_fields__})


FAMILY: dict[str, Callable[[Row], int]] = {
    "attention": lambda row: (int(row["heads"]) * 7 + int(row["kv_heads"])) % FOLDS,
    "experts": lambda row: (int(row["hidden"]) // 512 + int(row["experts"]) // 32) % FOLDS,
}
"""the fold of a row: shapes alike stay together"""


def held_out(kind: str, gpu: Gpu, rows: list[Row], law: DecodeLaw) -> Floats:
    """Relative errors, each by constants fitted on the other folds."""
    errors = []
    for fold in range(FOLDS):
        inside = [row for row in rows if FAMILY[kind](row) != fold]
        outside = [row for row in rows if FAMILY[kind](row) == fold]
        if inside and outside:
            (measured,) = columns(outside, "seconds")
            errors.append(predicted(kind, gpu, fitted(kind, gpu, inside, law), outside) / measured - 1.0)
    return np.concatenate(errors)


def main() -> int:
    with ROWS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    text = [
        "# Written by evidence/fit_decode.py from evidence/posttrain/decode.csv; cost/decode.py states the laws. SI.",
        'source = "AIConfigurator kernel tables (ai-dynamo/aiconfigurator, Apache-2.0), kernels as vLLM calls them"',
        'date = "2026-11-19"',
        'fallback = "h100"',
    ]
    for name in dict.fromkeys(row["gpu"] for row in rows):
        gpu, law = gpu_of(name), DecodeLaw()
        text += ["", f"[gpus.{name}]"]
        for kind in START:
            mine = [row for row in rows if row["gpu"] == name and row["op"] == kind]
            law = fitted(kind, gpu, mine, law)
            (measured,) = columns(mine, "seconds")
            if kind in FAMILY:
                errors, how = np.abs(held_out(kind, gpu, mine, law)), "held out"
            else:
                errors, how = np.abs(predicted(kind, gpu, law, mine) / measured - 1.0), "fitted"
            said = f"{len(mine)} rows, {how}: mean {errors.mean():.1%}, median {np.median(errors):.1%}"
            text += [f"{key} = {getattr(law, key):g}" for key in START[kind]] + [f'{kind} = "{said}"']
            print(f"{name:8} {kind:10} {said}")
    if "--write" in sys.argv:
        OUT.write_text("\n".join(text) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
