"""NCCL: its environment against what `export` writes, and the network it really takes."""

import re

from shardwise.run.preflight.finding import Finding, Probe, Subject, failed, few, passed, unknown, warned
from shardwise.run.preflight.node import Node
from shardwise.run.preflight.planned import PlannedJob
from shardwise.run.preflight.readers.cards import LANES, cards_of, compute_cards
from shardwise.run.preflight.readers.nccl_log import nccl_choice

HARMFUL = {
    "NCCL_P2P_DISABLE": "GPUs of a node talk through the host", "NCCL_SHM_DISABLE": "processes of a node use sockets",
    "NCCL_IB_DISABLE": "RDMA is off", "NCCL_NVLS_ENABLE=0": "NVSwitches do not add",
    "NCCL_NET_GDR_LEVEL=LOC": "GPUDirect is off", "NCCL_NET_GDR_LEVEL=0": "GPUDirect is off",
    "CUDA_LAUNCH_BLOCKING": "every kernel is waited for", "NCCL_DEBUG=TRACE": "logs slow every call",
    "TORCH_DISTRIBUTED_DEBUG=DETAIL": "every collective is checked twice",
}  # fmt: skip
"""variables left from a search for a fault; a name alone: when it is neither 0 nor empty"""
STOPS = ("NCCL_IB_DISABLE",)
"""those of them that stop a plan over several nodes"""
FORCED = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_NTHREADS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS", "NCCL_BUFFSIZE")
CONF = "/etc/nccl.conf"
STATES = ("up", "unknown", "dormant", "testing", "lowerlayerdown", "down", "notpresent")
"""of an interface; the first two carry packets"""
LOOPBACK = re.compile(r"^(lo|docker|veth|virbr|br-)")


def settings_of(node: Node) -> dict[str, str]:
    """The environment, above what the host's file states."""
    lines = (line.partition("#")[0].partition("=") for line in (node.read(CONF) or "").splitlines())
    stated = {name.strip(): value.strip() for name, sign, value in lines if sign and name.strip().startswith("NCCL_")}
    return {**stated, **node.environment}


def environment(node: Node, plan: PlannedJob | None) -> Finding:
    found = settings_of(node)
    harmful = [f"{name.partition('=')[0]} ({why})" for name, why in HARMFUL.items() if _is_set(found, name)]
    if harmful:
        stops = plan is not None and plan.networked and any(_is_set(found, name) for name in STOPS)
        return (failed if stops else warned)(few(harmful), "unset it")
    wanted = plan.environment if plan is not None else {}
    other = [f"{name}={found[name]}, planned {value}" for name, value in wanted.items()
             if name in found and found[name] != value]  # fmt: skip
    if other:
        return warned(few(other), "`shardwise export` writes the environment of the plan")
    forced = [f"{name}={found[name]}" for name in FORCED if name in found]
    if forced:
        return warned(f"forced: {few(forced)}", "leave the choice to NCCL, unless it was measured here")
    away = [f"{name}={value}" for name, value in wanted.items() if name not in found]
    if away:
        return warned(f"not set: {few(away)}", "export them, as `shardwise export` writes them")
    count = sum(name.startswith("NCCL_") for name in found)
    return passed(f"{count} NCCL variables" + (", as planned" if plan is not None else ", none that harms"))


def _is_set(found: dict[str, str], name: str) -> bool:
    name, sign, value = name.partition("=")
    if sign:
        return found.get(name, "").upper() == value
    return found.get(name, "0") not in ("0", "")


def binding(node: Node, plan: PlannedJob | None) -> Finding:
    found = settings_of(node)
    lanes, cards = node.names(LANES), [card.name for card in cards_of(node)]
    socket, cables = found.get("NCCL_SOCKET_IFNAME"), found.get("NCCL_IB_HCA")
    if not lanes:
        return unknown(f"{LANES} is empty")
    if socket and not (hit := matching(socket, lanes)):
        return failed(f"NCCL_SOCKET_IFNAME={socket}: no such interface", f"write one of {few(_usable(lanes))}")
    states = {node.read(f"{LANES}/{lane}/operstate") for lane in hit} if socket else set()
    if socket and not states & set(STATES):
        return unknown(f"NCCL_SOCKET_IFNAME={socket}: its state is not reported")
    if socket and not states & set(STATES[:2]):
        return failed(f"NCCL_SOCKET_IFNAME={socket} is down", f"write one of {few(_usable(lanes))}")
    if cables and cards:
        named = matching(cables, cards)
        slow = set(named) - {card.name for card in compute_cards(cards_of(node))}
        missing = {card.name for card in compute_cards(cards_of(node))} - set(named)
        if not named:
            return failed(f"NCCL_IB_HCA={cables}: no such NIC", f"write one of {few(cards)}")
        if slow or missing:
            told = (
                f"NCCL_IB_HCA={cables} {'takes ' + few(sorted(slow)) if slow else 'leaves out ' + few(sorted(missing))}"
            )
            return warned(told, "name the fast NICs, all of them")
    if plan is not None and plan.networked and len(_usable(lanes)) > 1 and not socket:
        return warned(
            f"NCCL_SOCKET_IFNAME is not set, {len(_usable(lanes))} interfaces", "name the one all hosts share"
        )
    stated = [each for each in (socket and f"first contact over {socket}", cables and f"NICs {cables}") if each]
    return passed(", ".join(stated) or "left to NCCL")


def _usable(lanes: list[str]) -> list[str]:
    return [lane for lane in lanes if not LOOPBACK.match(lane)]


def matching(pattern: str, names: list[str]) -> list[str]:
    """As NCCL reads it: prefixes, '=' before an exact name, '^' for all others; ports are cut off."""
    wanted = pattern.strip()
    others = wanted.startswith("^")
    wanted = wanted.lstrip("^")
    exact = wanted.startswith("=")
    words = [word.partition(":")[0] for word in wanted.lstrip("=").split(",") if word]
    hit = [name for name in names if any(name == word if exact else name.startswith(word) for word in words)]
    return [name for name in names if name not in hit] if others else hit


def taken(node: Node, plan: PlannedJob | None) -> Finding:
    found = nccl_choice(node.measured.nccl_log)
    if found is None:
        return unknown("no collective ran over NCCL here", "torchrun it with --measure on the GPUs")
    if found.network == "Socket":
        several = plan is not None and plan.networked
        told = f"NET/Socket over {few(found.devices)}"
        return failed(told, "NCCL_IB_HCA, RDMA libraries in the image, memlock") if several else passed(told)
    fast = {card.name for card in compute_cards(cards_of(node))}
    missing = sorted(fast - set(found.devices)) if found.network == "IB" else []
    if missing:
        return warned(f"NET/IB without {few(missing)}", "name all NICs in NCCL_IB_HCA; are they active?")
    if found.direct is False:
        return warned(f"NET/{found.network}, without GPUDirect", "load nvidia_peermem; NCCL_NET_GDR_LEVEL")
    told = f"{found.network or 'network not reported'}, {len(found.devices)} devices"
    return passed(told + (", GPUDirect" if found.direct else "") + (f", NCCL {found.version}" if found.version else ""))


SUBJECT = Subject("nccl", 60, (
    Probe("nccl-env", "NCCL's variables against the plan's", "environment, /etc/nccl.conf", environment),
    Probe("nccl-binding", "interfaces and NICs they name exist", "/sys/class/net, /sys/class/infiniband", binding),
    Probe("nccl-network", "the network NCCL takes", "NCCL_DEBUG=INFO of the measuring", taken, needs="measure"),
))  # fmt: skip
