"""A user's own command on every GPU of a lab, unmodified, told its rank as torchrun and torch.distributed expect it."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import IO

from shardwise_lab.build import Built
from shardwise_lab.cables import host_address
from shardwise_lab.launch import UNNAMED

PORT = 29_500
LONGEST_SAID = 400
POLL_S = 0.02
STDERR = 2
PATIENCE_S = 20.0
"""for the other ranks to end by themselves once one has failed"""


def environment(built: Built, order: Sequence[int], rank: int) -> dict[str, str]:
    """Both what torchrun reads as its own options (PET_...) and what it would tell a script itself."""
    first, ranks = host_address(order[0]), str(len(order))
    return {
        **os.environ, "GLOO_SOCKET_IFNAME": built.fabric.interface, "TP_SOCKET_IFNAME": built.fabric.interface,
        "MASTER_ADDR": first, "MASTER_PORT": str(PORT), "RANK": str(rank), "WORLD_SIZE": ranks, "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "shardwise-lab", "PET_NNODES": ranks,
        "PET_NODE_RANK": str(rank), "PET_NPROC_PER_NODE": "1", "PET_MASTER_ADDR": first, "PET_MASTER_PORT": str(PORT),
        **UNNAMED, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }  # fmt: skip


def command_ran(
    built: Built, command: Sequence[str], order: Sequence[int], limit_s: float
) -> tuple[float, list[int], str]:
    """(seconds, code of each rank, last words of the first that failed). The first rank's output goes to stderr.
    `order`: the GPU of each rank."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as said:
        processes = [_started(built, command, order, rank, said) for rank in range(len(order))]
        try:
            codes = _waited(processes, start + limit_s)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        said.seek(0)
        lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
    return time.monotonic() - start, codes, (lines[-1][:LONGEST_SAID] if lines else "")


def _started(
    built: Built, command: Sequence[str], order: Sequence[int], rank: int, said: IO[bytes]
) -> subprocess.Popen[bytes]:
    words = ["ip", "netns", "exec", built.hosts[order[rank]], *command]
    out = STDERR if rank == 0 else said.fileno()
    return subprocess.Popen(
        words, env=environment(built, order, rank), stdin=subprocess.DEVNULL, stdout=out, stderr=out
    )


def _waited(processes: list[subprocess.Popen[bytes]], until: float) -> list[int]:
    failed = False
    while any(process.poll() is None for process in processes):
        if not failed and any(process.returncode for process in processes):
            # the others wait for it in vain, unless they notice
            failed, until = True, min(until, time.monotonic() + PATIENCE_S)
        if time.monotonic() > until:
            if failed:
                break
            raise ValueError("limit: the command was not done in time; write a longer --limit")
        time.sleep(POLL_S)
    return [process.returncode if process.returncode is not None else -9 for process in processes]
