"""Facts of published traces of several GPUs, restated in few events.

facebookresearch/HolisticTraceAnalysis f4d0062, tests/data: `trace_diff/control` (8 A100, 2022), `trace_filter` (ranks
0 and 1 of 128, 2023), `negative_queue_length_values_check` (16 A100, 2023), `nccl_parser_config` (2 A100, NCCL 2.17,
2024). In those of 2022 and 2023 a kernel of NCCL bears no note of its group and is called SendRecv even where torch
asked for an all-reduce (`ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t`, all 10 kernels of `trace_filter`); the host's
mark (`nccl:all_to_all`, `nccl:all_reduce`, `nccl:_all_gather_base`) encloses the launch on the same thread, and
threads of the backward pass launch at the same time. In that of 2024 the kernel itself says "Collective name",
"Process Group Ranks" and "Process Group Description". "External id" of a kernel is its own correlation in the older
ones.
"""

import json

import pytest

from shardwise.measured.diagnose.measured_step import measured_step
from shardwise.programs.importers.kineto import read_trace

SENDRECV = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
MAIN, BACKWARD = 4037, 23695


def event(category: str, name: str, at: float, length: float, thread: int, **args: object) -> dict:
    return {"ph": "X", "cat": category, "name": name, "pid": 4037, "tid": thread, "ts": at, "dur": length, "args": args}


def collective(
    op: str, at: float, length: float, number: int, thread: int = MAIN, launched: float | None = None
) -> list[dict]:
    """Mark, launch and kernel of it, as in 2023."""
    asked = at - 500 if launched is None else launched
    return [
        event("cpu_op", "record_param_comms", asked - 20, 134, thread, **{"External id": number + 5000}),
        event("user_annotation", f"nccl:{op}", asked - 10, 105, thread, **{"External id": number + 5001}),
        event("cuda_runtime", "cudaLaunchKernel", asked, 18, thread,
              **{"External id": number, "cbid": 211, "correlation": number}),
        event("kernel", SENDRECV, at, length, 84, **{"External id": number, "device": 0, "stream": 84,
                                                     "correlation": number}),
    ]  # fmt: skip


def product(at: float, length: float, number: int, thread: int = MAIN) -> list[dict]:
    return [
        event("cuda_runtime", "cudaLaunchKernel", at - 400, 9, thread, correlation=number),
        event("kernel", "ampere_sgemm_128x64_tn", at, length, 7, correlation=number),
    ]


def step(late: float = 0.0, clock: float = 0.0) -> list[dict]:
    """40 ms of products and `late` more, an all-to-all that ends at 90 ms, an all-reduce of another thread to 130."""
    begun = 1_000_000 + clock
    events = product(begun, 40_000 + late, 1)
    events += collective("all_to_all", begun + 40_000 + late, 50_000 - late, 2)
    events += collective("all_reduce", begun + 90_000, 40_000, 3, BACKWARD, launched=begun + 39_501 + late)
    return events


def write(folder, rank: int, events: list[dict]):
    path = folder / f"rank{rank}.json"
    told = {"backend": "nccl", "rank": rank, "world_size": 128}
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": told, "traceEvents": events}))
    return path


def test_a_kernel_is_what_the_host_asked_for(tmp_path):
    (trace,) = read_trace(write(tmp_path, 0, step()))
    found = measured_step([trace], None)
    parts = {cause.code: round(cause.seconds * 1e3, 3) for cause in found.causes}
    # without the marks all of it would be sends, and those are taken for a pipeline's
    assert parts == {"compute": 40, "ep_comm": 50, "comm": 40}
    assert "all_to_all" in next(cause.evidence for cause in found.causes if cause.code == "ep_comm")


def test_a_launch_outside_of_the_marks_keeps_its_name(tmp_path):
    events = [each for each in step() if each["tid"] != BACKWARD or each["cat"] != "user_annotation"]
    (trace,) = read_trace(write(tmp_path, 0, events))
    ops = {name.op for name in trace.names if name.kind == "comm"}
    assert ops == {"all_to_all", "send"}


def test_ranks_are_held_against_each_other_by_what_was_asked_for(tmp_path):
    traces = [*read_trace(write(tmp_path, 0, step())), *read_trace(write(tmp_path, 1, step(20_000, clock=7_000_000)))]
    found = measured_step(traces, None)
    assert found.slow_rank == "rank 1"
    straggler = next(cause for cause in found.causes if cause.code == "straggler")
    assert straggler.seconds * 1e3 == pytest.approx(20, rel=0.01)


def test_collectives_that_do_not_overlap_are_none(tmp_path):
    """A profiler that left out the first of them: the rest would be paired with others' earlier ones."""
    whole = [each for number in range(4) for each in collective("all_reduce", 1e6 + 1e5 * number, 1e3, number)]
    later = [each for number in range(1, 4) for each in collective("all_reduce", 1e6 + 1e5 * number**2, 1e3, number)]
    traces = [*read_trace(write(tmp_path, 0, whole)), *read_trace(write(tmp_path, 1, later))]
    found = measured_step(traces, None)
    assert found.slow_rank == ""
    assert found.waits.shared < 3


def test_a_kernel_that_bears_its_group(tmp_path):
    note = {"Collective name": "allreduce", "In msg nelems": 6637568, "Out msg nelems": 6637568, "Group size": 2,
            "dtype": "Float", "Process Group Name": "0", "Process Group Description": "default_pg",
            "Process Group Ranks": "[0, 1]", "External id": 12945, "correlation": 60047}  # fmt: skip
    kernel = event("kernel", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", 1e6, 2636.669, 40, **note)
    (trace,) = read_trace(write(tmp_path, 0, [kernel]))
    (name,) = trace.names
    assert (name.op, name.ranks, name.group_size, name.description) == ("all_reduce", (0, 1), 2, "default_pg")
    assert trace.message.tolist() == [6637568]
