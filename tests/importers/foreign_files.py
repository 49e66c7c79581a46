"""Samples of the forms that are read: nccl-tests, training logs, a profiler trace."""

RANKS = "\n".join(
    f"#  Rank {i:2} Group  0 Pid  68{i} on node-{i // 4} device  {i % 4} [0000:04:00] NVIDIA H100 80GB HBM3"
    for i in range(8)
)
TEXT = f"""# nccl-tests version 2.17.1 nccl-headers=22703 nccl-library=22703
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 8589934592 step: 4(factor) warmup iters: 5 iters: 20
# Using devices
{RANKS}
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1     88.1   11.90   20.83      0     87.9   11.93   20.88      0
  1073741824     268435456     float     sum      -1  15012.0   71.53  125.17      0  15010.0   71.54  125.19      0
# Avg bus bandwidth    : 60.0
"""
JSON = {
    "version": 2, "args": ["/opt/all_gather_perf", "-b", "1M"],
    "config": {"nthreads": 1, "ngpus": 4, "devices": [
        {"rank": 0, "hostname": "a", "device_info": "NVIDIA H100 80GB HBM3"}, {"rank": 4, "hostname": "b"}]},
    "results": [
        {"size": 1048576, "type": "float", "out_of_place": {"time": 60.5, "bus_bw": 15.0}, "in_place": {"time": 60.0}},
        {"size": 4194304, "out_of_place": None, "in_place": {"time": 99.5}},
        {"size": 8, "out_of_place": {"time": "nan"}}, "junk",
    ],
}  # fmt: skip
TITAN = (
    "[rank0]:[titan] 2025-02-01 12:00:00 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 12.2  "
    "\x1b[33mmemory: 45.00GiB(47.20%)"
    "  \x1b[34mtps: 1,066  \x1b[36mtflops: 50.00  \x1b[35mmfu: 5.05%\x1b[39m\n"
    "step: 10  loss:  8.1  memory: 49.58GiB(52.20%)  tps: 5,966  tflops: 280.1  mfu: 28.3%\n"
    "step: 20  loss:  7.1  grad_norm: 1.5  memory: 49.58GiB(52.20%)  tps: 5,980  tflops: 281.1  mfu: 28.4%\n"
)
MEGATRON = """ iteration        1/     100 | consumed samples:  512 | elapsed time per iteration (ms): 30420.1 |
[Rank 0] (after 1 iterations) memory (MB) | allocated: 20000.0 | max allocated: 60001.5 | reserved: 65000.0
 iteration        2/     100 | consumed samples: 1024 | elapsed time per iteration (ms): 8420.1 | loss: 1.0 |
 iteration        3/     100 | consumed samples: 1536 | elapsed time per iteration (ms): 8440.1 | loss: 1.0 |
"""


def trace(shapes: bool = True) -> dict:
    ops = [
        (1, "aten::mm", [[4096, 2048], [2048, 8192]], ["c10::BFloat16", "c10::BFloat16"], 250.0),
        (2, "aten::addmm", [[512], [1024, 256], [256, 512]], ["c10::BFloat16"] * 3, 12.0),
        (3, "aten::_flash_attention_forward", [[2, 4096, 32, 128], [2, 4096, 8, 128]], ["c10::BFloat16"] * 2, 700.0),
        (4, "aten::_scaled_dot_product_flash_attention_backward", [[2, 32, 4096, 128]], ["c10::BFloat16"], 1900.0),
        (5, "aten::mm", [[64, 64], [64, 64]], ["float", "float"], 9.0),
    ]
    events: list[dict] = [{"ph": "M", "name": "process_name", "args": {"name": "python"}}]
    for number, name, dims, types, micros in ops:
        args = {"External id": number} | ({"Input Dims": dims, "Input type": types} if shapes else {})
        events.append({"ph": "X", "cat": "cpu_op", "name": name, "ts": 1.0, "dur": 5, "pid": 1, "tid": 1, "args": args})
        kernel = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1e4 * number, "dur": micros, "pid": 0, "tid": 7}
        events.append(kernel | {"args": {"External id": number}})
    events += [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 8.0 * i, "dur": 3.0, "pid": 1, "tid": 1}
        for i in range(80)
    ]
    return {"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": events}
