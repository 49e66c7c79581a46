"""Constants of a stack fitted without a whole source, or the large runs: kept in evidence/accuracy/left_out.json.

Only a stack fitted on several sources can be fitted without one; what the others would be without theirs needs no fit
(`_band_rows.without_its_source`).
"""

import json
from typing import Any

from _accuracy_data import ROOT, Rows, rows_of
from _accuracy_fit import defaults, fit
from shardwise.spec.software import Stack
from shardwise.spec.software.stack import covers

LEFT_OUT = ROOT / "evidence" / "accuracy" / "left_out.json"
SMALL = 4
"""runs of at most this part of the most GPUs teach the constants that larger ones are predicted with"""
FEWEST = 5

Settings = dict[str, float]


def read_left_out() -> dict[str, dict[str, Settings]]:
    """ "without SOURCE" and "small" -> stack -> its settings"""
    found: dict[str, dict[str, Settings]] = json.loads(LEFT_OUT.read_text()) if LEFT_OUT.is_file() else {}
    return found


def renew_left_out(stacks: list[Stack]) -> None:
    """Written after every fit: an interrupted run keeps what it has."""
    found = read_left_out()
    for stack in stacks:
        for name, part in _parts(rows_of(stack)).items():
            found.setdefault(name, {})[stack.name] = _rounded(fit(part, defaults(stack)))
            LEFT_OUT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def small(rows: Rows) -> list[bool]:
    most = max(case.cluster.gpus for case in rows.cases)
    return [SMALL * case.cluster.gpus <= most for case in rows.cases]


def _parts(rows: Rows) -> dict[str, Rows]:
    """The rows that are left, by what was left out."""
    sources = rows.stack.fitted_sources
    found = {
        f"without {source}": rows.take(not covers(source, case.measured.word("source")) for case in rows.cases)
        for source in (sources if len(sources) > 1 else ())
    }
    found["small"] = rows.take(small(rows))
    return {name: part for name, part in found.items() if len(part.cases) >= FEWEST and len(part.groups) > 1}


def _rounded(settings: dict[str, Any]) -> Settings:
    return {name: float(f"{value:.4g}") for name, value in settings.items()}
