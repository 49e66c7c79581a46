"""More ranks than GPUs, on purpose: all on the first one, each a host of its own to NCCL, which refuses two ranks of
one host on one device and sends between hosts over sockets."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import sleep

from msgspec import Struct

from shardwise.run.runtime.loopback import ADDRESS, INTERFACE, use_loopback
from shardwise.run.runtime.ranks import words_of_end
from shardwise.run.runtime.seats import LoopbackSeats
from shardwise.run.runtime.train.ending import STOP_SIGNALS

FIRST_NCCL = (2, 5, 6)
"""the first release that reads NCCL_HOSTID; older ones refuse the second rank on a device, or send to themselves"""
MOST_RANKS = 64
MPS = "nvidia-cuda-mps-control"
RUNNING_MPS = Path("/tmp") / "nvidia-mps" / "control"  # nosec B108  where its makers put it
POLL_S, GRACE_S = 0.02, 5.0


class SharedGpu(Struct, frozen=True, kw_only=True):
    """The device that all ranks have."""

    ranks: int
    nccl: tuple[int, ...]
    mps: str
    """how its time is shared, in words"""

    def text(self) -> str:
        release = ".".join(map(str, self.nccl))
        return (
            f"{self.ranks} ranks share one GPU on purpose (--share-gpu): NCCL {release} over sockets, {self.mps}; "
            "times are not those of a GPU for each"
        )


def shared_gpu(ranks: int) -> SharedGpu:
    """ValueError where it cannot be; the driver counts devices, so that this process may still fork."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch

    if not 2 <= ranks <= MOST_RANKS:
        raise ValueError(f"share-gpu: {ranks} is out of range; write a number of ranks from 2 to {MOST_RANKS}")
    if not torch.cuda.is_available():
        raise ValueError("share-gpu: this machine has no CUDA device; write --device cpu for ranks over gloo")
    nccl = nccl_release()
    if nccl < FIRST_NCCL:
        release, least = ".".join(map(str, nccl)) or "none", ".".join(map(str, FIRST_NCCL))
        raise ValueError(f"share-gpu: NCCL is {release}, and ranks share a GPU from {least} on; install a newer torch")
    return SharedGpu(ranks=ranks, nccl=nccl, mps=_mps_words())


def nccl_release() -> tuple[int, ...]:
    """Of the torch that is installed; empty where it has none."""
    import torch

    try:
        found = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    except (AttributeError, RuntimeError):
        return ()
    return tuple(map(int, found))[:3]


def rank_variables(rank: int) -> dict[str, str]:
    """What tells NCCL that this rank is alone on its host, with the first of the visible devices."""
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    return {
        "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "CUDA_VISIBLE_DEVICES": device,
        "NCCL_HOSTID": f"shardwise-{rank}", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": INTERFACE,
    }  # fmt: skip


class SharedGpuSeats(LoopbackSeats):
    def enter(self, rank: int) -> None:
        os.environ.update(rank_variables(rank))

    def together(self) -> AbstractContextManager[None]:
        """A service of each attempt: one whose client was killed, or broke the GPU's rules, takes no new ones."""
        return multi_process_service()


def _mps_words() -> str:
    if RUNNING_MPS.exists() or os.environ.get("CUDA_MPS_PIPE_DIRECTORY"):
        return "kernels side by side by the machine's MPS"
    return "kernels side by side by an MPS of this run" if shutil.which(MPS) else "kernels in turns (no MPS here)"


@contextmanager
def multi_process_service() -> Iterator[None]:
    """NVIDIA's service that runs kernels of several processes side by side, for as long as this lasts; the machine's
    own where there is one, and none where it is not installed."""
    if RUNNING_MPS.exists() or os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or not (program := shutil.which(MPS)):
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        mine = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        started = subprocess.run([program, "-d"], env={**os.environ, **mine}, capture_output=True)
        if started.returncode:
            yield
            return
        os.environ.update(mine)
        try:
            yield
        finally:
            subprocess.run([program], env=dict(os.environ), input=b"quit\n", capture_output=True)
            for name in mine:
                os.environ.pop(name, None)


def run_script(words: Sequence[str], ranks: int) -> tuple[int, str]:
    """The script on so many ranks, with the variables that torchrun sets on hosts of one GPU each; its exit code, and
    which rank ended first with another than 0."""
    use_loopback()
    port = _free_port()
    team: list[subprocess.Popen[bytes]] = []
    stopped = 0

    def pass_on(number: int, _: object) -> None:
        nonlocal stopped
        stopped = number
        for one in team:
            one.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in STOP_SIGNALS}
    try:
        with multi_process_service():
            for rank in range(ranks):
                environment = {
                    **os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "GROUP_RANK": str(rank),
                    "GROUP_WORLD_SIZE": str(ranks), "MASTER_ADDR": ADDRESS, "MASTER_PORT": str(port),
                    "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), **rank_variables(rank),
                }  # fmt: skip
                team.append(subprocess.Popen([sys.executable, *words], env=environment))
            code, why = _ended(team)
    finally:
        _end(team)
        for number, handler in before.items():
            signal.signal(number, handler)
    return (128 + stopped if stopped and code else code), why


def _ended(team: list[subprocess.Popen[bytes]]) -> tuple[int, str]:
    while True:
        codes = [one.poll() for one in team]
        # one that was killed before those that only noticed
        bad = min(((code > 0, rank, code) for rank, code in enumerate(codes) if code), default=None)
        if bad is not None:
            code = bad[2]
            return (code if code > 0 else 128 - code), words_of_end(bad[1], code)
        if all(code == 0 for code in codes):
            return 0, ""
        sleep(POLL_S)


def _end(team: list[subprocess.Popen[bytes]]) -> None:
    for one in team:
        if one.poll() is None:
            one.terminate()
    for one in team:
        try:
            one.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((ADDRESS, 0))
        return int(found.getsockname()[1])
