"""Hosts on one switch with slow links, on this machine: Linux network namespaces, veth pairs and a token bucket.

Needs root and the `ip` and `tc` commands. Everything made here carries this process's number in its name and is removed
at the end, whatever happens.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLONE_NEWNET = 0x40000000


def refusal() -> str:
    """Why it cannot be done here; empty: it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (iproute2)"
    probe = f"swp{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return f"namespaces are not allowed: {made.stderr.strip()}" if made.returncode else ""


@contextmanager
def hosts(count: int, rate: str) -> Iterator[list[str]]:
    """Names of the namespaces; host i has address 10.79.0.(i + 1) on eth0 and sends at most `rate`, as tc writes it."""
    head = f"sw{os.getpid()}"
    switch, names = f"{head}s", [f"{head}h{i}" for i in range(count)]
    try:
        for name in (switch, *names):
            _do(f"ip netns add {name}")
        _do(f"ip -n {switch} link add leaf0 type bridge stp_state 0")
        _do(f"ip -n {switch} link set leaf0 up")
        for i, name in enumerate(names):
            _do(f"ip -n {name} link set lo up")
            _do(f"ip -n {name} link add eth0 type veth peer name p{i} netns {switch}")
            _do(f"ip -n {switch} link set p{i} master leaf0 up")
            _do(f"ip -n {name} addr add 10.79.0.{i + 1}/24 dev eth0")
            _do(f"ip -n {name} link set eth0 up")
            for place, device in ((name, "eth0"), (switch, f"p{i}")):
                _do(f"tc -n {place} qdisc replace dev {device} root tbf rate {rate} burst 16kb limit 512kb")
        yield names
    finally:
        for name in (switch, *names):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def enter(name: str) -> None:
    """This process goes into the namespace."""
    with open(f"/var/run/netns/{name}") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {name}")


def sent_bytes(device: str = "eth0") -> int:
    """Bytes the interface has sent, headers and acknowledgements included."""
    lines = Path("/proc/self/net/dev").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.strip().startswith(f"{device}:"))
    return int(line.split(":")[1].split()[8])


def _do(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")
