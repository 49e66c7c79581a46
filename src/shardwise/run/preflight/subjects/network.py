"""Network cards: speed and state, RDMA and GPUDirect, MTU, flow control and marking, flaps."""

import re

from shardwise.run.preflight.finding import Finding, Probe, Subject, failed, few, passed, unknown, warned
from shardwise.run.preflight.limits import limit
from shardwise.run.preflight.node import Node
from shardwise.run.preflight.planned import PlannedJob
from shardwise.run.preflight.readers.cards import LANES, ROOT, Card, cards_of, compute_cards, whole
from shardwise.run.preflight.readers.lossless import FlowControl, active_mtus, flow_control_of
from shardwise.run.preflight.subjects.gpus import log_events

NO_CARD = "no RDMA NIC in /sys/class/infiniband"
PEER = ("nvidia_peermem", "nv_peer_mem")
DMA_BUF = (5, 12)
"""kernels from here on can hand a GPU's memory to a card by themselves, with the open driver"""
GIDS = 16


def cards_here(node: Node) -> list[Card] | Finding:
    """Those that carry collectives."""
    return compute_cards(cards_of(node)) or unknown(NO_CARD)


def roce_here(node: Node) -> list[Card] | Finding:
    cards = [card for card in compute_cards(cards_of(node)) if card.roce]
    return cards or unknown("no RoCE NIC: nothing to set")


def speed(node: Node, plan: PlannedJob | None) -> Finding:
    cards = cards_here(node)
    if isinstance(cards, Finding):
        needed = plan is not None and plan.networked
        return failed(NO_CARD, "load the NICs' driver; without RDMA NCCL falls to sockets") if needed else cards
    down = [card.name for card in cards if not card.up]
    if down:
        return failed(f"not active: {few(down)}", "look at cable, optic and switch port (ibstat)")
    if any(card.rate is None for card in cards):
        return unknown("a NIC reports no rate")
    rates = sorted({card.rate or 0.0 for card in cards})
    told = f"{len(cards)} NICs of {few([f'{rate * 8 / 1e9:g}' for rate in rates])} Gb/s"
    if len(rates) > 1:
        slow = [card.name for card in cards if card.rate == rates[0]]
        return failed(f"{told}; slower: {few(slow)}", "look at cable, optic and the port's speed and width")
    if plan is None or not plan.networked:
        return passed(told)
    total, wanted = sum(card.rate or 0.0 for card in cards), plan.host_bytes_per_s
    if total < 0.99 * wanted:
        return failed(
            f"{told}; planned {wanted * 8 / 1e9:g} Gb/s a host", "NICs are missing or slow; else plan with --nic"
        )
    if plan.cards is not None and len(cards) != plan.cards:
        return warned(f"{told}; planned for {plan.cards}", "write --nic as the NICs are")
    return passed(f"{told}, planned {wanted * 8 / 1e9:g} Gb/s a host")


def rdma(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    cards = cards_here(node)
    if isinstance(cards, Finding):
        return cards
    wrong = [f"{card.name} {card.state or '?'} {card.physical}".strip() for card in cards if not card.up]
    if wrong:
        return failed(few(wrong), "look at cable and switch port; on InfiniBand at the subnet manager")
    layers = sorted({card.layer for card in cards if card.layer})
    if len(layers) > 1:
        return warned(f"NICs of {' and '.join(layers)} mixed", "name those of the job in NCCL_IB_HCA")
    return passed(f"{len(cards)} active, {layers[0] if layers else 'link layer not reported'}")


def direct(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    cards = cards_here(node)
    if isinstance(cards, Finding):
        return cards
    modules = node.read("/proc/modules")
    if modules is None:
        return unknown("/proc/modules is not there")
    loaded = {line.split()[0] for line in modules.splitlines() if line.split()}
    here = [name for name in PEER if name in loaded]
    if here:
        return passed(f"{here[0]} is loaded")
    release = re.match(r"(\d{1,3})\.(\d{1,4})", node.read("/proc/sys/kernel/osrelease") or "")
    open_driver = "open kernel module" in (node.read("/proc/driver/nvidia/version") or "").lower()
    if release and (int(release[1]), int(release[2])) >= DMA_BUF and open_driver:
        return passed(f"dma-buf: kernel {release[0]} with the open driver")
    if "nvidia" not in loaded:
        return unknown("no driver of NVIDIA is loaded")
    return warned("neither nvidia_peermem nor dma-buf", "modprobe nvidia_peermem: else data crosses the host's memory")


def mtu(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    cards = cards_here(node)
    if isinstance(cards, Finding):
        return cards
    wanted = int(limit("network.ethernet_mtu"))
    lanes = {lane: whole(node.read(f"{LANES}/{lane}/mtu")) for card in cards if card.roce for lane in card.lanes}
    printed = node.run("ibv_devinfo", r"hca_id|active_mtu")
    active = active_mtus(printed.text) if printed is not None and not printed.code else {}
    small = [f"{lane} {size}" for lane, size in lanes.items() if size is not None and size < wanted]
    narrow = [
        f"{card.name} {active[card.name]}" for card in cards if active.get(card.name, 10**6) < limit("network.rdma_mtu")
    ]
    if len({size for size in lanes.values() if size is not None}) > 1:
        return failed(f"interfaces differ: {few([f'{lane} {size}' for lane, size in lanes.items()])}", "set them alike")
    if small or narrow:
        return warned(f"small: {few([*small, *narrow])}", f"ip link set LANE mtu {wanted} on hosts and switches alike")
    if not active and not any(size is not None for size in lanes.values()):
        return unknown("ibv_devinfo is not installed" if printed is None else "no MTU is reported")
    told = [f"{few(sorted(set(active.values())))} on the wire"] if active else []
    told += [f"interfaces {few(sorted({size for size in lanes.values() if size}))}"] if lanes else []
    return passed(", ".join(told))


def flow_control(node: Node, lane: str) -> FlowControl | None:
    for command in (f"mlnx_qos -i {lane}", f"dcb pfc show dev {lane}"):
        printed = node.run(command)
        found = flow_control_of(printed.text) if printed is not None and not printed.code else None
        if found is not None:
            return found
    return None


def pfc(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    cards = roce_here(node)
    if isinstance(cards, Finding):
        return cards
    lanes = [lane for card in cards for lane in card.lanes]
    found = {lane: flow_control(node, lane) for lane in lanes}
    silent = [lane for lane, each in found.items() if each is None]
    if silent or not found:
        return unknown(f"neither mlnx_qos nor dcb reports on {few(silent) or 'any interface'}")
    wanted = int(limit("network.lossless_priority"))
    cure = "mlnx_qos -i LANE --trust dscp --pfc " + ",".join("1" if p == wanted else "0" for p in range(8))
    settings = {each for each in found.values() if each is not None}
    if len(settings) > 1:
        return failed(f"interfaces of this host differ: {few(list(found))}", cure)
    only = settings.pop()
    on = few(only.priorities) or "none"
    if 0 in only.priorities:
        return failed(f"priority {on} pauses: everything else with it", cure)
    if only.priorities != (wanted,):
        return warned(f"priority {on} pauses; usual is {wanted}", cure)
    if only.trust and only.trust != "dscp":
        return warned(f"trust {only.trust}: marks of routed packets are not seen", cure)
    return passed(f"priority {wanted} only" + (f", trust {only.trust}" if only.trust else ""))


def ecn(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    cards = roce_here(node)
    if isinstance(cards, Finding):
        return cards
    wanted = int(limit("network.lossless_priority"))
    off, silent = list[str](), list[str]()
    for lane in [lane for card in cards for lane in card.lanes]:
        for side in ("roce_np", "roce_rp"):
            value = whole(node.read(f"{LANES}/{lane}/ecn/{side}/enable/{wanted}"))
            (silent if value is None else off).extend([f"{lane} {side}"] if value in (None, 0) else [])
    if off:
        return failed(
            f"off: {few(off)}", f"echo 1 into /sys/class/net/LANE/ecn/roce_np|rp/enable/{wanted}: DCQCN needs both"
        )
    if silent:
        return unknown(f"not reported for {few(silent)}")
    return passed(f"both sides of DCQCN on for priority {wanted}")


def gids(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    cards = roce_here(node)
    if isinstance(cards, Finding):
        return cards
    found = {card.name: version_two(node, card.name) for card in cards}
    without = [name for name, places in found.items() if not places]
    if all(not node.names(f"{ROOT}/{name}/ports/1/gid_attrs/types") for name in found):
        return unknown("no GID table is reported")
    if without:
        return failed(f"no RoCE v2 GID: {few(without)}", "give the interface an address; look at show_gids")
    stated = node.environment.get("NCCL_IB_GID_INDEX")
    if stated is not None and whole(stated) is not None and any(int(stated) not in each for each in found.values()):
        return failed(
            f"NCCL_IB_GID_INDEX={stated} is not a RoCE v2 GID", f"write {few(found[cards[0].name])}, or unset it"
        )
    return passed(f"RoCE v2 at index {few(found[cards[0].name])}")


def version_two(node: Node, card: str) -> list[int]:
    """Places of RoCE v2 in its table of GIDs."""
    at = f"{ROOT}/{card}/ports/1/gid_attrs/types"
    places = [int(name) for name in node.names(at)[:GIDS] if name.isdecimal()]
    return [place for place in places if "v2" in (node.read(f"{at}/{place}") or "")]


def flaps(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    cards = compute_cards(cards_of(node))
    downs = {card.name: whole(node.read(f"{ROOT}/{card.name}/ports/1/counters/link_downed")) for card in cards}
    events, hours = log_events(node), limit("log.flap_hours")
    if isinstance(events, Finding) and not any(value is not None for value in downs.values()):
        return unknown("neither link_downed nor the kernel's log can be read")
    lost: dict[str, int] = {}
    for each in [] if isinstance(events, Finding) else events:
        if each.kind == "flap" and (each.age_s is None or each.age_s <= hours * 3600):
            lost[each.where] = lost.get(each.where, 0) + 1
    bad = [f"{name} {count} times" for name, count in lost.items() if count >= limit("log.flaps")]
    if bad:
        return failed(f"lost its carrier in {hours:.0f} h: {few(bad)}", "look at optic, cable and the port's log")
    went = [f"{name} {count}" for name, count in downs.items() if count]
    if lost or went:
        return warned(f"went down: {few([*(f'{name} {count}' for name, count in lost.items()), *went])} since it was "
                      "counted", "look again after the measuring: a count that grows is a bad link")  # fmt: skip
    return passed(f"no link of {len(cards)} NICs went down" if cards else f"no carrier lost in {hours:.0f} h")


SUBJECT = Subject("network", 30, (
    Probe("nic-speed", "NICs up, number and speed", "/sys/class/infiniband/*/ports/1/rate", speed),
    Probe("rdma", "RDMA ports active", "/sys/class/infiniband/*/ports/1/state", rdma),
    Probe("gpudirect", "NICs reach GPU memory directly", "/proc/modules, driver version", direct),
    Probe("mtu", "large packets on the network", "/sys/class/net/*/mtu, ibv_devinfo", mtu),
    Probe("pfc", "RoCE: which priorities pause", "mlnx_qos -i, dcb pfc show", pfc),
    Probe("ecn", "RoCE: marking and its answer (DCQCN)", "/sys/class/net/*/ecn", ecn),
    Probe("roce-gid", "RoCE: addresses of version 2", "/sys/class/infiniband/*/ports/1/gid_attrs", gids),
    Probe("link-flaps", "links that went down", "dmesg, counters/link_downed", flaps),
))  # fmt: skip
