"""Traces of pipelined runs as ByteDance's StragglerAnalysis publishes them: a table with one operation a row (dp_rank,
stage, rank, step, optype, start_ts, duration, mb_id, gmc), as parquet (needs pyarrow) or as CSV."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwise.measured.diagnose.what_if import BACKWARD, FORWARD, Piece, PipelineTrace
from shardwise.programs.importers._file import read_text

COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "mb_id", "gmc")
KINDS = {"forward-compute": FORWARD, "backward-compute": BACKWARD}
HOPS = ("forward-send", "forward-recv", "backward-send", "backward-recv")
AFTER = ("params-all-gather", "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "grads-reduce-scatter",
         "separate-grads-all-reduce", "optimizer-clip-main-grad", "optimizer")  # fmt: skip
MOST_ROWS = 20_000_000
Columns = dict[str, NDArray[Any]]


def is_straggler_trace(path: Path) -> bool:
    """A CSV, by its columns."""
    try:
        if not path.is_file():  # a pipe may have nobody who writes
            return False
        with path.open(encoding="utf-8", errors="replace") as file:
            return set(COLUMNS) <= set(file.readline(2000).strip().split(","))
    except OSError:
        return False


def read_straggler_trace(path: Path) -> PipelineTrace:
    columns = _parquet_columns(path) if path.suffix == ".parquet" else _csv_columns(path)
    try:
        return _trace(columns)
    except (KeyError, IndexError, ValueError, OverflowError) as error:
        raise ValueError(
            f"folder: {path.name} is not a trace of a pipeline that can be put together ({error})"
        ) from None


def _parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise ValueError(
            f"folder: {path.name} is parquet and pyarrow is not installed; write pip install 'shardwise[traces]', or "
            "give it as CSV"
        ) from None
    try:
        return parquet.ParquetFile(path)
    except Exception as error:  # a damaged file can end in many of pyarrow's own
        raise ValueError(f"folder: {path.name} cannot be read as parquet ({str(error)[:100]})") from None


def _parquet_columns(path: Path) -> Columns:
    file = _parquet(path)
    if file.metadata.num_rows > MOST_ROWS:
        raise ValueError(f"folder: {path.name} has more than {MOST_ROWS:,} rows; cut it")
    if lacking := [name for name in COLUMNS if name not in file.schema_arrow.names]:
        raise ValueError(f"folder: {path.name} has no column {lacking[0]}; write a trace of operations")
    table = file.read(columns=list(COLUMNS))
    return {name: table[name].to_numpy() if name != "optype" else np.array(table[name].to_pylist(), dtype=object)
            for name in COLUMNS}  # fmt: skip


def _csv_columns(path: Path) -> Columns:
    text = read_text(path, "folder")
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline=None)))
    except csv.Error as error:
        raise ValueError(f"folder: {path.name} is not a table ({error})") from None
    try:
        found: Columns = {
            name: np.array([float(row[name]) for row in rows]) for name in COLUMNS if name != "optype"
        }  # fmt: skip
    except (TypeError, ValueError, KeyError):
        raise ValueError(f"folder: {path.name} has a cell that is not a number") from None
    return found | {"optype": np.array([row["optype"] for row in rows], dtype=object)}


def _trace(columns: Columns) -> PipelineTrace:
    kinds = columns["optype"]
    compute = np.isin(kinds, list(KINDS))
    replicas, steps = np.unique(columns["dp_rank"][compute]), np.unique(columns["step"][compute])
    stages = np.unique(columns["stage"][compute])
    order = tuple(_order(columns, compute, replicas[0], steps[0], stage) for stage in stages)
    places = {(stage, piece): number for number, (stage, piece) in
              enumerate((stage, piece) for stage, pieces in enumerate(order) for piece in pieces)}  # fmt: skip
    seconds = np.full((len(places), len(replicas), len(steps)), np.nan)
    at = [np.searchsorted(known, columns[name][compute]) for name, known in
          (("stage", stages), ("dp_rank", replicas), ("step", steps))]  # fmt: skip
    rest = (kinds[compute], columns["gmc"][compute], columns["mb_id"][compute], columns["duration"][compute])
    for stage, replica, step, kind, chunk, micro, took in zip(*(each.tolist() for each in (*at, *rest)), strict=True):
        seconds[places[stage, (KINDS[kind], int(chunk), int(micro))], replica, step] = took
    whole = ~np.isnan(seconds).any(axis=(0, 1))
    if not whole.any() or not (seconds[:, :, whole] >= 0).all():
        raise ValueError("no step has all its pieces")
    ranks = tuple(tuple(int(columns["rank"][compute & (columns["dp_rank"] == replica) & (columns["stage"] == stage)][0])
                        for stage in stages) for replica in replicas)  # fmt: skip
    return PipelineTrace(order, seconds[:, :, whole], _hop(columns), _after(columns), ranks)


def _order(columns: Columns, compute: NDArray[np.bool_], replica: Any, step: Any, stage: Any) -> tuple[Piece, ...]:
    rows = compute & (columns["dp_rank"] == replica) & (columns["step"] == step) & (columns["stage"] == stage)
    first = np.argsort(columns["start_ts"][rows], kind="stable")
    fields = (columns["optype"][rows][first], columns["gmc"][rows][first], columns["mb_id"][rows][first])
    return tuple((KINDS[kind], int(chunk), int(micro)) for kind, chunk, micro in zip(*fields, strict=True))


def _hop(columns: Columns) -> float:
    """Most transfers are waits: a quick one tells what a transfer takes."""
    took = columns["duration"][np.isin(columns["optype"], HOPS)]
    return float(np.quantile(took, 0.1)) if len(took) else 0.0


def _after(columns: Columns) -> float:
    """Who comes last waits least: of each kind the shortest of a step, of the usual step."""
    found = 0.0
    for kind in AFTER:
        rows = columns["optype"] == kind
        if rows.any():
            steps, took = columns["step"][rows], columns["duration"][rows]
            found += float(np.median([took[steps == step].min() for step in np.unique(steps)]))
    return found
