"""What this machine lacks for a lab, found by trying it in a namespace that is removed again at once."""

import os
import shutil
import subprocess
from pathlib import Path

from msgspec import Struct

from shardwise_lab.build import kept
from shardwise_lab.names import LOCKS, space_of

TOOLS = ("ip", "tc", "sh")


class Allowed(Struct, frozen=True, kw_only=True):
    """What can be done here; `missing` is empty where a lab can be built."""

    missing: tuple[str, ...]
    root: bool
    rootless: bool
    """namespaces of a user who is not root, in which one is"""
    marks: bool = False
    """a program of ours may mark packets (ECN)"""
    congestion: tuple[str, ...] = ()


FORBIDDEN = "SHARDWISE_NO_LAB"
"""set by whoever does not want labs on a machine"""


def allowed() -> Allowed:
    if os.environ.get(FORBIDDEN):
        return Allowed(missing=(f"permission: {FORBIDDEN} is set here",), root=False, rootless=False)
    tools = tuple(f"the command {name!r} (package iproute2)" for name in TOOLS if shutil.which(name) is None)
    root = os.geteuid() == 0
    rootless = not root and not tools and _may_unshare()
    if tools or not root:
        why = () if root or rootless or tools else (_no_root(),)
        return Allowed(missing=(*tools, *why), root=root, rootless=rootless)
    try:
        return _tried()
    except OSError as error:
        return Allowed(missing=(f"a lock in {LOCKS}: {error}",), root=True, rootless=False)


def _no_root() -> str:
    barred = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    known = barred.is_file() and barred.read_text(encoding="utf-8").strip() == "1"
    told = " (apparmor_restrict_unprivileged_userns is 1)" if known else ""
    return f"root: network namespaces of other users are not allowed here{told}; run it with sudo"


def _may_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-rnm", "--propagation", "private", "sh", "-c",
               "mount -t tmpfs none /run && mkdir /run/netns && ip netns add swlab-0-h0"]  # fmt: skip
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _tried() -> Allowed:
    lab = f"{os.getpid()}probe"
    a, b = space_of(lab, "x0"), space_of(lab, "y0")
    steps = (
        ("network namespaces", f"ip netns add {a}"),
        ("network namespaces", f"ip netns add {b}"),
        ("veth pairs", f"ip -n {a} link add v0 type veth peer name v0 netns {b}"),
        ("token buckets (tc tbf)", f"tc -n {a} qdisc replace dev v0 root tbf rate 10mbit burst 16kb limit 64kb"),
    )
    with kept(lab):
        for what, command in steps:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                reason = (done.stderr.strip() or "refused").splitlines()[-1]
                return Allowed(missing=(f"{what}: {reason}",), root=True, rootless=False)
        return Allowed(missing=(), root=True, rootless=False, marks=_has_bpf(), congestion=_congestion())


def _has_bpf() -> bool:
    from shardwise_lab.marking import may_load

    return may_load()


def _congestion() -> tuple[str, ...]:
    file = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
    return tuple(file.read_text(encoding="utf-8").split()) if file.is_file() else ()


def refuse_if_forbidden() -> None:
    if os.environ.get(FORBIDDEN):
        raise ValueError(f"lab: {FORBIDDEN} is set on this machine; unset it")
