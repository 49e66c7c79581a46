"""Exports of nsys with the tables and columns of real captures (nsys_files.py)."""

import sqlite3

import pytest
from nsys_files import GRAPH, MS, PUSHED, export, global_id

from shardwise.measured.diagnose.measured_step import measured_step
from shardwise.programs.importers.nsys import read_nsys


def parts(traces) -> list[dict[str, float]]:
    return [{code: round(seconds * 1e3, 3) for code, seconds in rank.parts.items()}
            for rank in measured_step(traces, None).ranks]  # fmt: skip


def test_each_process_has_its_own_launches_marks_and_gpu(tmp_path):
    traces = read_nsys(export(tmp_path / "job.sqlite", late_ms=(0, 20)))
    assert [trace.name for trace in traces] == ["job.sqlite process 4100", "job.sqlite process 4101"]
    assert {trace.device for trace in traces} == {"NVIDIA H100 80GB HBM3"}
    first, second = parts(traces)
    # the numbers of launches are the same in both, so a kernel joined with the other's launch would be late
    assert first == {"compute": 50, "copy": 5, "comm": 24, "wait": 20, "host": 1}
    assert second == {"compute": 50, "copy": 5, "comm": 24, "data": 20, "host": 1}


def test_two_processes_that_each_call_their_gpu_zero_are_two_ranks(tmp_path):
    path = export(tmp_path / "job.sqlite")
    with sqlite3.connect(path) as file:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"):
            file.execute(f"UPDATE {table} SET deviceId = 0")
    traces = read_nsys(path)
    assert len(traces) == 2
    assert [each["compute"] for each in parts(traces)] == [50, 50]
    # which of the sampled GPUs each of them is, nothing says
    assert [trace.clock for trace in traces] == [None, None]


def test_the_clock_is_in_hertz_and_of_the_gpu_that_the_sampler_means(tmp_path):
    clocks = [trace.clock for trace in read_nsys(export(tmp_path / "job.sqlite", clocks=(1_410, 1_980)))]
    assert [clock.hz / 1e6 for clock in clocks if clock] == [1_410, 1_980]
    # a GPU that rests is not one that is slow
    assert [clock.samples for clock in clocks if clock] == [30, 30]


def test_a_graph_traced_as_a_whole_is_work(tmp_path):
    path = export(tmp_path / "job.sqlite", processes=(4100,))
    with sqlite3.connect(path) as file:
        file.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE demangledName = 1")
        for step in range(3):
            at = (1000 + 100 * step) * MS
            file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, 0, 1, NULL, 7, ?, ?, 1, 1)",
                         (at + 6 * MS, at + 56 * MS, 10 * step, global_id(4100)))  # fmt: skip
        file.execute("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET nameId = ? WHERE correlationId % 10 = 0", (GRAPH,))
    assert parts(read_nsys(path)) == [{"compute": 50, "copy": 5, "comm": 44, "host": 1}]


@pytest.mark.parametrize("lost", [
    ("CUPTI_ACTIVITY_KIND_KERNEL", "mangledName"), ("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName"),
    ("NVTX_EVENTS", "textId"), ("TARGET_INFO_GPU", "pwGpuId"), ("TARGET_INFO_GPU_METRICS", "metricName"),
    ("GPU_METRICS", "typeId"), ("TARGET_INFO_CUDA_DEVICE", "pid"), ("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind"),
])  # fmt: skip
def test_older_and_newer_versions_lack_columns(tmp_path, lost):
    path = export(tmp_path / "job.sqlite", processes=(4100,))
    with sqlite3.connect(path) as file:
        file.execute(f"ALTER TABLE {lost[0]} DROP COLUMN {lost[1]}")
    (found,) = parts(read_nsys(path))
    assert found["comm"] == 44
    assert found["compute"] + found.get("copy", 0.0) == 55


def test_an_export_without_processes_is_one_rank_for_each_gpu(tmp_path):
    path = export(tmp_path / "job.sqlite")
    with sqlite3.connect(path) as file:
        for table, column in (("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"), ("CUPTI_ACTIVITY_KIND_MEMCPY", "globalPid"),
                              ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"), ("NVTX_EVENTS", "globalTid")):  # fmt: skip
            file.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    assert [trace.name for trace in read_nsys(path)] == ["job.sqlite GPU 0", "job.sqlite GPU 1"]


def test_ranges_of_megatron_and_lightning_are_steps(tmp_path):
    path = export(tmp_path / "job.sqlite", processes=(4100,))
    with sqlite3.connect(path) as file:
        file.execute("UPDATE NVTX_EVENTS SET text = replace(text, 'iteration ', 'iteration') WHERE eventType = ?",
                     (PUSHED,))  # fmt: skip
    (trace,) = read_nsys(path)
    assert len(trace.steps) == 3
