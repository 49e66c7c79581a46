"""Exports of Nsight Systems as files that people published have them: every table and column that bears on a reader.

The columns are those of nsys 2024.3 to 2026.2 (NVIDIA's "SQLite Export Schema Reference", and tables that public
readers of real captures state): `globalPid` and `globalTid` carry the process above 24 bits; numbers that join a
kernel with its launch begin anew in each process; a range has `eventType` 59 (pushed and popped) or 60 (started and
ended) and its text in `text` or, by number, in `textId`; an instant has no end; graphs traced as a whole are rows of
their own; samples of metrics bear the GPU in the lowest byte of `typeId`, by the sampler's own numbering; the clock
is in Hz, whatever its name says.
"""

import sqlite3
from pathlib import Path

MS = 1_000_000
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  launchType INTEGER,
  registersPerThread INTEGER, gridX INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  value INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
  greenContextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER,
  graphExecId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER,
  jsonTextId INTEGER, jsonText TEXT, binaryData BLOB);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT,
  isDiscrete INTEGER,
  totalMemory INTEGER, memoryBandwidth INTEGER, smCount INTEGER, pwGpuId INTEGER, uuid TEXT, chipName TEXT,
  cuDevice INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER NOT NULL, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL,
  uuid TEXT NOT NULL, numMultiprocessors INTEGER NOT NULL);
CREATE TABLE GPU_METRICS (rawTimestamp INTEGER, timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL,
  value INTEGER NOT NULL);
CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER NOT NULL, sourceId INTEGER NOT NULL, typeName TEXT NOT NULL,
  metricId INTEGER NOT NULL, metricName TEXT NOT NULL);
"""
WORDS = {
    1: "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT", 2: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)",
    3: "cudaLaunchKernel_v7000", 4: "cudaStreamSynchronize_v3020", 5: "cudaMemcpyAsync_v3020",
    6: "cudaGraphLaunch_v10000", 7: "get_batch", 8: "iteration 2",
}  # fmt: skip
GEMM, REDUCE, LAUNCH, SYNC, COPY, GRAPH, DATA, STEP = WORDS
PUSHED, STARTED, INSTANT, DOMAIN = 59, 60, 34, 75
HIGH = 1 << 48
"""of the machine, above the process"""
SAMPLER = 0x1000100000000


def global_id(process: int, thread: int = 0) -> int:
    return HIGH | process << 24 | thread


def export(path: Path, processes: tuple[int, ...] = (4100, 4101), clocks: tuple[int, ...] = (1_410, 1_980),
           late_ms: tuple[int, ...] = (0, 0)) -> Path:  # fmt: skip
    """Steps of 100 ms of each process on a GPU of its own, the numbers of its calls the same: `late_ms` in which the
    next batch is fetched, a copy of 5 ms, products of 50 ms, a reduction up to the end. `clocks` in MHz."""
    with sqlite3.connect(path) as file:
        file.executescript(SCHEMA)
        file.executemany("INSERT INTO StringIds VALUES (?, ?)", WORDS.items())
        file.executemany(
            "INSERT INTO TARGET_INFO_GPU VALUES (0, ?, 'NVIDIA H100 80GB HBM3', '0000:19:00.0', 1, 85520809984, "
            "3352320000000, 132, ?, '', 'GH100', ?)", [(number, 1 - number, number) for number in range(2)],
        )  # fmt: skip
        for device, process in enumerate(processes):
            file.execute("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, ?, ?, '', 132)", (device, device, process))
            _steps(file, process, device, late_ms[device])
        _samples(file, clocks)
    return path


def _steps(file: sqlite3.Connection, process: int, device: int, late_ms: int) -> None:
    own, thread = global_id(process), global_id(process, 77)
    file.execute("INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) VALUES (0, ?, 'NCCL', ?, 1)",
                 (DOMAIN, thread))  # fmt: skip
    for step in range(3):
        at = (1000 + 100 * step) * MS
        begun = at + late_ms * MS
        spans = [(begun + 6 * MS, begun + 56 * MS, GEMM), (begun + 56 * MS, at + 100 * MS, REDUCE)]
        for number, (start, end, name) in enumerate(spans):
            joined = 10 * step + number
            file.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES "
                "(?, ?, ?, 1, NULL, 7, ?, ?, ?, ?, NULL, 1, 168, 132, NULL)",
                (start, end, device, joined, own, name, name),
            )
            file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 1, ?, ?, ?, 0, NULL)",
                         (begun, begun + MS // 100, thread, joined, LAUNCH))  # fmt: skip
        file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, 1, NULL, 7, ?, ?, 1024, 1, 0, 2)",
                     (begun + MS, begun + 6 * MS, device, 10 * step + 5, own))  # fmt: skip
        file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 1, ?, ?, ?, 0, NULL)",
                     (begun + MS - MS // 10, begun + MS, thread, 10 * step + 5, COPY))  # fmt: skip
        texts = [(at, at + 100 * MS, PUSHED, f"iteration {step}", None), (at, None, INSTANT, "a mark", None)]
        texts += [(at, begun, STARTED, None, DATA)] if late_ms else []
        file.executemany("INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid, domainId) "
                         "VALUES (?, ?, ?, ?, ?, ?, 0)", [(*row, thread) for row in texts])  # fmt: skip


def _samples(file: sqlite3.Connection, clocks: tuple[int, ...]) -> None:
    metrics = {0: "GPC Clock Frequency [MHz]", 1: "SYS Clock Frequency [MHz]", 2: "GR Active [Throughput %]"}
    for number, mhz in enumerate(clocks):
        kind = SAMPLER | (1 - number)  # the sampler counts the other way round
        file.executemany("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 0, 'General Metrics', ?, ?)",
                         [(kind, metric, name) for metric, name in metrics.items()])  # fmt: skip
        for place in range(40):
            at, resting = 900 * MS + place * 10 * MS, place < 10
            values = [(0, (345 if resting else mhz) * 10**6), (1, 1_500 * 10**6), (2, 0 if resting else 97)]
            file.executemany("INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?, ?)",
                             [(at, at, kind, metric, value) for metric, value in values])  # fmt: skip
