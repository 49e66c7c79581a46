"""What cross-validation found, as plain numbers: kept in evidence/accuracy/folds.json."""

import hashlib
import json
from typing import Any

import msgspec
import numpy as np

from _accuracy_bounds import bound_of
from _accuracy_data import ROOT, Floats, Rows, group_of, memory_errors, time_errors
from _accuracy_fit import Key, cross_validate, defaults, fit
from shardwise.spec.software import PARTS, Stack

FOLDS = ROOT / "evidence" / "accuracy" / "folds.json"

Record = dict[str, Any]


def read_folds() -> dict[str, Record]:
    found: dict[str, Record] = json.loads(FOLDS.read_text()) if FOLDS.is_file() else {}
    return found


def write_folds(records: dict[str, Record]) -> None:
    FOLDS.parent.mkdir(parents=True, exist_ok=True)
    FOLDS.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")


def stated_settings(stack: Stack) -> str:
    """A mark of everything a fit takes as given: folds of another mark are out of date. What stands at its default
    is left out, so that a new setting that a stack does not use leaves its folds as they are."""
    settings = {}
    for its in (getattr(stack, part) for part in PARTS):
        usual = msgspec.to_builtins(type(its)())
        settings |= {name: value for name, value in msgspec.to_builtins(its).items() if value != usual.get(name)}
    given = {name: value for name, value in settings.items() if name not in stack.fitted}
    given |= {"like": stack.like, "in_bf16": stack.in_bf16, "fitted": sorted(stack.fitted), "on": stack.fitted_on,
              "evenly": stack.fitted_evenly}  # fmt: skip
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:12]


def spread(errors: Floats) -> Record:
    """Mean, median and signed mean of relative errors."""
    absolute = np.abs(errors)
    return {
        "rows": len(errors),
        "mape": _short(absolute.mean()),
        "median": _short(np.median(absolute)),
        "bias": _short(errors.mean()),
        "within_20": _short((absolute <= 0.2).mean()),
    }


def record_of(rows: Rows, folds: int, key: Key = group_of, jobs: int = 1) -> Record:
    """Folds, and the fit on all rows from the same start."""
    found = cross_validate(rows, folds, key, jobs)
    held_out = [prediction for fold in found for prediction in fold.held_out]
    together = fit(rows, defaults(rows.stack))
    memory = memory_errors(held_out)
    refits_memory = len(memory) > 0 and any(name in together for name in _memory_names(rows.stack))
    return {
        "stated": stated_settings(rows.stack),
        "groups": len(rows.groups),
        "folds": [spread(time_errors(f.held_out)) | {"settings": _rounded(f.settings)} for f in found],
        "held_out": spread(time_errors(held_out)),
        "held_out_memory": spread(memory) if refits_memory else None,
        "all_rows": spread(time_errors(rows.predict(together))) | {"settings": _rounded(together)},
    }


def _memory_names(stack: Stack) -> list[str]:
    return [name for name in stack.fitted if bound_of(name).memory]


def _short(value: Any) -> float:
    return round(float(value), 4)


def _rounded(settings: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in settings.items()}
