"""A pipeline simulated again without each suspect: the one that was put in is named."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from shardwise.measured.diagnose.what_if import BACKWARD, FORWARD, PipelineTrace, what_if
from shardwise.plugins.schedules import schedules
from shardwise.programs.importers.straggler_trace import COLUMNS, read_straggler_trace

NAMES = {FORWARD: "forward-compute", BACKWARD: "backward-compute"}


def made(stages=4, replicas=4, steps=6, micro=8, *, worker=None, stage=None, lengths=0.0, seed=0) -> PipelineTrace:
    """1f1b; `worker`: (replica, stage, times), `stage`: (stage, times), `lengths`: spread of sequences."""
    random = np.random.default_rng(seed)
    kinds = {"F": FORWARD, "B": BACKWARD}
    order = tuple(
        tuple((kinds[action.kind], place, action.micro_batch) for action in actions)
        for place, actions in enumerate(schedules()["1f1b"].order(stages, 1, micro))
    )
    cost = random.lognormal(0.0, lengths, (micro, replicas, steps))
    seconds = np.array([
        (1.0 if kind == FORWARD else 2.0) * cost[number] * (stage[1] if stage and place == stage[0] else 1.0)
        for place, pieces in enumerate(order) for kind, _, number in pieces
    ])  # fmt: skip
    seconds *= random.lognormal(0.0, 0.01, seconds.shape)
    if worker:
        rows = [place == worker[1] for place, pieces in enumerate(order) for _ in pieces]
        seconds[np.array(rows), worker[0]] *= worker[2]
    ranks = tuple(tuple(replica * stages + place for place in range(stages)) for replica in range(replicas))
    return PipelineTrace(order, seconds, 0.001, 0.1, ranks)


def test_an_even_pipeline_takes_what_its_formula_says():
    found = what_if(made(lengths=0.0))
    # (micro-batches + stages - 1) forwards and backwards, hops, and what follows
    assert found.ideal_s == pytest.approx((8 + 4 - 1) * 3.0 + 0.1, rel=0.01)
    assert found.slowdown == pytest.approx(1.0, abs=0.03)
    assert found.cause is None


def test_a_slow_worker():
    found = what_if(made(worker=(2, 1, 2.0)))
    assert (found.cause.code, found.cause.rank) == ("straggler", 9)
    assert found.suspects[0].share == pytest.approx(1.0, abs=0.1)


def test_a_long_last_stage():
    found = what_if(made(stage=(3, 1.6)))
    assert (found.cause.code, found.cause.where) == ("slow_stage", "the last stage")


def test_uneven_sequences():
    found = what_if(made(replicas=16, lengths=0.5))
    assert found.cause.code == "sequence"
    assert found.together > 0.95


def test_noise_that_is_no_sequence_is_not_called_one():
    trace = made()
    random = np.random.default_rng(1)
    loud = PipelineTrace(trace.order, trace.seconds * random.lognormal(0, 0.5, trace.seconds.shape), 0.001, 0.1)
    found = what_if(loud)
    assert abs(found.together) < 0.3
    assert all(each.code != "sequence" for each in found.suspects)


def rows_of(trace: PipelineTrace):
    """As the published tables have them."""
    for replica in range(trace.seconds.shape[1]):
        for step in range(trace.seconds.shape[2]):
            at = dict.fromkeys(range(trace.stages), 0.0)
            for (stage, (kind, chunk, micro)), took in zip(
                trace.pieces, trace.seconds[:, replica, step].tolist(), strict=True
            ):
                yield [replica, stage, trace.ranks[replica][stage], step, NAMES[kind], at[stage], took, micro, chunk]
                at[stage] += took
            yield [replica, 0, 0, step, "forward-send", 1.0, 0.001, -1, -1]
            yield [replica, 0, 0, step, "optimizer", 99.0, 0.1, -1, -1]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_of_operations_are_read(form, tmp_path):
    trace = made(worker=(1, 2, 1.8))
    path = tmp_path / f"trace.{form}"
    rows = list(rows_of(trace))
    if form == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({n: [row[i] for row in rows] for i, n in enumerate(COLUMNS)}), path)
    else:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *rows])
    read = read_straggler_trace(path)
    assert read.order == trace.order
    assert np.allclose(read.seconds, trace.seconds, rtol=1e-6)
    assert read.ranks == trace.ranks
    assert what_if(read).cause.rank == 6


def test_what_is_no_trace_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",".join(COLUMNS) + "\n0,0,0,0,forward-compute,0,x,0,0\n")
    with pytest.raises(ValueError, match="not a number"):
        read_straggler_trace(path)
    path.write_text(",".join(COLUMNS) + "\n0,0,0,0,nothing,0,1,0,0\n")
    with pytest.raises(ValueError, match="not a trace of a pipeline"):
        read_straggler_trace(path)


REAL = os.environ.get("SHARDWISE_STRAGGLER_TRACES", "")


@pytest.mark.skipif(not REAL, reason="SHARDWISE_STRAGGLER_TRACES names no folder of trace-AR.parquet and the others")
@pytest.mark.parametrize(
    ("name", "code", "slowdown"), [("AR", "straggler", 1.97), ("ST", "slow_stage", 1.18), ("SE", "sequence", 1.54)]
)
def test_published_traces(name, code, slowdown):
    """ByteDance-Seed/StragglerAnalysis: slowdowns as its own result files have them (arXiv:2505.05713)."""
    pytest.importorskip("pyarrow")
    found = what_if(read_straggler_trace(Path(REAL) / f"trace-{name}.parquet"))
    assert found.cause.code == code
    assert found.slowdown == pytest.approx(slowdown, rel=0.02)


def test_a_table_that_is_none_is_refused_in_one_line(tmp_path):
    path = tmp_path / "trace.csv"
    head = "dp_rank,stage,rank,step,optype,start_ts,duration,mb_id,gmc\n"
    for rows, says in (
        ("x" * 140_000, "is not a table"),
        ("1,2,3\r4\n", "not a number"),
        ("0,0,0,0,forward-compute,0,inf,nan,0", "put"),
    ):
        path.write_text(head + rows)
        with pytest.raises(ValueError, match=says) as refused:
            read_straggler_trace(path)
        assert "\n" not in str(refused.value)
