"""What eight bits gain: pairs of measured runs that differ in the dtype alone, measured against predicted.

    python benchmarks/precision.py [--json]

The ratio of the two steps leaves out what both runs share, so it shows the products' rates and what a recipe casts.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from _accuracy_csv import FOLDER
from _accuracy_data import SHIPPED, TRUTH
from _band_rows import FOUND
from shardwise.measured.validate.predict import Prediction, predict
from shardwise.measured.validate.score import scored
from shardwise.measured.validate.table import MEASURED, read_table

WIDE = ("bf16", "fp16")
NOT_COMPARED = MEASURED | {"dtype", "notes", "source_ref", "predicted_step_s", "predicted_low_s", "predicted_high_s"}
"""columns in which the two runs of a pair may differ"""


class Pair(NamedTuple):
    source: str
    dtype: str
    measured: float
    """speed over that in 16 bits"""
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1.0


def pairs_of(predictions: Iterable[Prediction]) -> list[Pair]:
    alike: dict[tuple[tuple[str, str], ...], list[Prediction]] = defaultdict(list)
    for found in predictions:
        if found.error is not None and scored(found):
            cells = found.measured.text.items()
            alike[tuple(cell for cell in cells if cell[0] not in NOT_COMPARED)].append(found)
    pairs = []
    for group in alike.values():
        wide = [found for found in group if found.measured.word("dtype").lower() in WIDE]
        narrow = [found for found in group if found.measured.word("dtype").lower() not in WIDE]
        pairs += [_pair(wide[0], found) for found in narrow if wide]
    return pairs


def _pair(wide: Prediction, narrow: Prediction) -> Pair:
    speeds = [found.measured.tokens_per_s_per_gpu or 0.0 for found in (wide, narrow)]
    steps = [found.step_s or 0.0 for found in (wide, narrow)]
    row = narrow.measured
    return Pair(row.word("source"), row.word("dtype").lower(), speeds[1] / speeds[0], steps[0] / steps[1])


def all_pairs() -> list[Pair]:
    truth = TRUTH / "steps.csv"
    tables: list[Path] = [truth if truth.is_file() else SHIPPED, *(FOLDER / name for name in FOUND)]
    return [pair for table in tables for pair in pairs_of(predict(read_table(table)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    given = parser.parse_args()
    by_source: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in all_pairs():
        by_source[pair.source, pair.dtype].append(pair)
    print(f"{'source':<28} {'dtype':<15} {'pairs':>5} {'measured':>8} {'predicted':>9} {'error':>7}")
    for (source, dtype), group in sorted(by_source.items()):
        measured, predicted, error = (
            float(np.mean(values))
            for values in zip(*((p.measured, p.predicted, abs(p.error)) for p in group), strict=True)
        )
        print(f"{source:<28} {dtype:<15} {len(group):>5} {measured:8.3f} {predicted:9.3f} {error:7.1%}")
    if given.json:
        every = [pair.error for group in by_source.values() for pair in group]
        over = [np.mean([abs(pair.error) for pair in group]) for group in by_source.values()]
        print(json.dumps({"pairs": len(every), "mean_error": float(np.mean(np.abs(every))),
                          "bias": float(np.mean(every)), "mean_error_sources": float(np.mean(over))}))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
