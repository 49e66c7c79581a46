"""Seconds a GPU needs to compress and decompress, from measured kernels scaled by memory bandwidth."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from shardwise import catalog
from shardwise.plugins.sync import Strategy
from shardwise.plugins.sync.power_sgd import PowerSGD

_TABLE = Path(catalog.__file__).parent / "sync_codecs.toml"
_STANDS_IN = "block_top_k"
"""for the components a strategy picks by a transform of its own"""


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))


def encode_bytes(name: str, strategy: Strategy) -> float:
    """Bytes per number that a copy moves in the time encoding takes."""
    table = _table()
    if name == "low_rank":
        codec = getattr(strategy, "compressor", None)
        return _bytes(_low_rank_ms(getattr(codec, "rank", 1)))
    known = table["encode_ms"]
    return _bytes(float(known[name] if name in known else known[_STANDS_IN]))


def factor_bytes(strategy: Strategy) -> float:
    """The same for strategies that factor matrices themselves."""
    return _bytes(_low_rank_ms(strategy.rank)) if isinstance(strategy, PowerSGD) else 0.0


def decode_slower() -> float:
    return float(_table()["decode_slower"])


def source_of(strategy: Strategy) -> str:
    """Where the time to compress is from; empty where nothing is compressed."""
    levels = [getattr(strategy, level) for level in ("inner", "outer") if hasattr(strategy, level)]
    if levels:
        return next(filter(None, map(source_of, levels)), "")
    table, codec = _table(), getattr(strategy, "compressor", None)
    name = codec.name if codec is not None else "fastest components" if strategy.name == "demo" else ""
    if isinstance(strategy, PowerSGD):
        return str(table["source"])
    if not name:
        return ""
    timed = (*table["encode_ms"], "low_rank")
    stand = table["stands_for"].get(name, "" if name in timed else _STANDS_IN)
    return f"{table['source']}{f'; {name}: as measured for {stand}' if stand else ''}"


def _bytes(milliseconds: float) -> float:
    table = _table()
    return 1e-3 * milliseconds * float(table["copy_bytes_per_s"]) / float(table["numbers"])


def _low_rank_ms(rank: int) -> float:
    """Between measured ranks on a straight line; beyond the last as many times more."""
    known = {int(key): float(value) for key, value in _table()["low_rank_ms"].items()}
    most = max(known)
    return float(np.interp(rank, sorted(known), [known[k] for k in sorted(known)])) * max(rank / most, 1.0)
