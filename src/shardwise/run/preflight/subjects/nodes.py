"""Nodes side by side: what must be equal on all, clocks, and which leaf each card hangs on."""

from collections import Counter
from collections.abc import Mapping, Sequence

from shardwise.run.preflight.finding import Finding, Probe, Subject, failed, few, passed, unknown, warned
from shardwise.run.preflight.limits import limit
from shardwise.run.preflight.node import Node
from shardwise.run.preflight.planned import PlannedJob
from shardwise.run.preflight.readers.cards import LANES, cards_of, compute_cards, whole
from shardwise.run.preflight.readers.clock import ntp_offset
from shardwise.run.preflight.readers.leaves import Leaf, leaves_from_discovery, leaves_from_lldp
from shardwise.run.preflight.readers.smi import table
from shardwise.run.preflight.subjects.gpus import MODES, POWER
from shardwise.run.preflight.subjects.host import CPUS
from shardwise.run.preflight.subjects.nccl import settings_of
from shardwise.run.preflight.subjects.network import flow_control
from shardwise.run.preflight.subjects.software import STRICT, versions_of

Seat = tuple[str, int]
"""host, number of the card among those that carry collectives"""
PER_HOST = ("NCCL_SOCKET_IFNAME", "NCCL_DEBUG_FILE", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""variables that may differ from host to host"""


def differing(found: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, list[str]]]:
    """Name -> value -> hosts, of what is not equal on all; one that a host does not tell is told as such."""
    names = dict.fromkeys(name for values in found.values() for name in values)
    by_value: dict[str, dict[str, list[str]]] = {}
    for name in names:
        values: dict[str, list[str]] = {}
        for host, each in found.items():
            values.setdefault(each.get(name, "not there"), []).append(host)
        if len(values) > 1:
            by_value[name] = values
    return by_value


def told_of(name: str, values: Mapping[str, Sequence[str]]) -> str:
    """What most have, and who has something else."""
    usual = max(values, key=lambda value: len(values[value]))
    others = [f"{few(hosts, 3)} {value}" for value, hosts in values.items() if value != usual]
    return f"{name} {usual}, but {'; '.join(others[:3])}"


def versions(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    found = {node.host: versions_of(node) for node in nodes}
    apart = differing(found)
    strict = [told_of(name, values) for name, values in apart.items() if name in STRICT]
    if strict:
        return failed(few(strict, 2), "install one image on all hosts")
    if apart:
        return warned(few([told_of(name, values) for name, values in apart.items()], 2), "bring them to one version")
    names = list(next(iter(found.values())))
    return passed(f"equal on {len(nodes)} hosts: {', '.join(names)}") if names else unknown("no version is reported")


def settings(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    found = {node.host: settings_here(node) for node in nodes}
    apart = differing(found)
    network = [told_of(name, values) for name, values in apart.items() if name.startswith(("mtu", "pfc"))]
    if network:
        return failed(few(network, 2), "set MTU and PFC alike on all hosts and switches")
    if apart:
        return warned(few([told_of(name, values) for name, values in apart.items()], 2), "set them alike on all hosts")
    names = list(next(iter(found.values())))
    return passed(f"equal on {len(nodes)} hosts: {', '.join(names)}") if names else unknown("no setting is reported")


def settings_here(node: Node) -> dict[str, str]:
    """MTU, flow control, GPU modes, power limits, governor, as text; what is not told is away."""
    found: dict[str, set[str]] = {}
    for card in compute_cards(cards_of(node)):
        for lane in card.lanes if card.roce else ():
            found.setdefault("mtu", set()).add(str(whole(node.read(f"{LANES}/{lane}/mtu"))))
            control = flow_control(node, lane)
            if control is not None:
                found.setdefault("pfc", set()).add(f"{few(control.priorities) or 'none'} {control.trust}".strip())
    for names in (MODES, POWER[:3]):
        rows = table(node, names if names is MODES else POWER)
        for row in [] if isinstance(rows, Finding) else rows:
            for name in names:
                found.setdefault(name, set()).add(row[name])
    governor = node.read(f"{CPUS}/cpu0/cpufreq/scaling_governor")
    if governor:
        found["governor"] = {governor}
    return {name: ", ".join(sorted(values)) for name, values in found.items()}


def variables(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    found = {node.host: {name: value for name, value in settings_of(node).items() if name not in PER_HOST}
             for node in nodes}  # fmt: skip
    apart = differing(found)
    if any(name.startswith("NCCL_") for name in apart):
        return failed(
            few([told_of(name, values) for name, values in apart.items()], 2), "start all hosts from one script"
        )
    if apart:
        return warned(
            few([told_of(name, values) for name, values in apart.items()], 2), "start all hosts from one script"
        )
    return passed(f"{len(next(iter(found.values())))} variables, equal on {len(nodes)} hosts")


def clocks(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    offsets, how = _offsets(nodes)
    if len(offsets) < len(nodes):
        return unknown(f"known of {len(offsets)} of {len(nodes)} hosts", "torchrun measures it; chronyc reports it")
    low, high = min(offsets, key=lambda host: offsets[host]), max(offsets, key=lambda host: offsets[host])
    skew = offsets[high] - offsets[low]
    told = f"{skew * 1e3:.3g} ms between {low} and {high} ({how})" if skew else f"no measurable difference ({how})"
    if skew > limit("host.clock_fail_s"):
        return failed(told, "start chronyd on all hosts with one server")
    if skew > limit("host.clock_skew_s"):
        return warned(told, "start chronyd on all hosts with one server")
    return passed(told)


def _offsets(nodes: Sequence[Node]) -> tuple[dict[str, float], str]:
    for node in nodes:
        if len(node.measured.clock_offsets_s) == len(nodes):
            return node.measured.clock_offsets_s, "measured"
    found = {}
    for node in nodes:
        printed = node.run("chronyc -n tracking")
        offset = ntp_offset(printed.text) if printed is not None and not printed.code else None
        if offset is not None:
            found[node.host] = offset
    return found, "by their time servers"


def leaves(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:
    seats = seats_of_cards(nodes)
    if not seats:
        return unknown(
            "neither LLDP nor ibnetdiscover reports it", "lldpd on the hosts; or --topology with ibnetdiscover's output"
        )
    by_leaf: dict[str, dict[int, list[str]]] = {}
    for (host, number), (leaf, _) in seats.items():
        by_leaf.setdefault(leaf, {}).setdefault(number, []).append(host)
    hosts = {host for host, _ in seats}
    own = {host: {leaf for (each, _), (leaf, _) in seats.items() if each == host} for host in hosts}
    if all(len(each) == 1 for each in own.values()):
        meant = plan is not None and plan.networked and plan.cluster.rails > 1
        told = "all NICs of a host hang on one leaf"
        return warned(told, "planned with rails: write a cluster without") if meant else passed(f"{told}: no rails")
    strays = []
    order = {node.host: place for place, node in enumerate(nodes)}
    for leaf, numbers in by_leaf.items():
        # what most have is right; of as many the first host
        usual = max(numbers, key=lambda number: (len(numbers[number]), -min(order[host] for host in numbers[number])))
        for number, there in numbers.items():
            if number != usual:
                ports = few(sorted({seats[(host, number)][1] for host in there}), 2)
                strays.append(f"NIC {number} of {few(there, 2)} on {leaf} port {ports}, where NIC {usual} belongs")
    if strays:
        return failed(few(strays, 2), "swap the cables back: its traffic takes a spine it should not need")
    if len(hosts) < len(nodes):
        return unknown(f"aligned on {len(hosts)} of {len(nodes)} hosts; the others report nothing")
    return passed(f"NIC i of {len(hosts)} hosts on one leaf each, {len(by_leaf)} leaves")


def seats_of_cards(nodes: Sequence[Node]) -> dict[Seat, Leaf]:
    """The leaf of every card that is told of, by LLDP of each host, else by what one host discovered."""
    found: dict[Seat, Leaf] = {}
    discovered: dict[tuple[str, str], Leaf] = {}
    for node in nodes:
        printed = node.run("ibnetdiscover")
        text = node.measured.ibnetdiscover or (printed.text if printed is not None and not printed.code else "")
        discovered |= leaves_from_discovery(text)
    for node in nodes:
        printed = node.run("lldpctl -f json")
        told = leaves_from_lldp(printed.text) if printed is not None and not printed.code else {}
        for number, card in enumerate(compute_cards(cards_of(node))):
            for lane in card.lanes:
                if lane in told:
                    found[(node.host, number)] = told[lane]
            for name in (node.host, node.host.partition(".")[0]):
                if (name, card.name) in discovered:
                    found[(node.host, number)] = discovered[(name, card.name)]
    return found


def kinds(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    counts = {node.host: f"{len(cards)} NICs" for node in nodes if (cards := compute_cards(cards_of(node)))}
    for node in nodes:
        rows = table(node, ("name",))
        if not isinstance(rows, Finding):
            names = Counter(row["name"] for row in rows)
            gpus = ", ".join(f"{many} x {name}" for name, many in names.items())
            counts[node.host] = "; ".join(filter(None, (gpus, counts.get(node.host))))
    if not counts:
        return unknown("no host reports a GPU or NIC")
    values = differing({node.host: {"hosts have": counts.get(node.host, "nothing")} for node in nodes})
    if values:
        return failed(told_of("hosts have", values["hosts have"]), "drain the host that lacks something")
    return passed(f"{next(iter(counts.values()))} on each of {len(nodes)} hosts")


SUBJECT = Subject("nodes", 90, (
    Probe("equal-hardware", "GPUs and NICs equal on all hosts", "nvidia-smi, /sys/class/infiniband", across=kinds,
         needs="nodes"),
    Probe("equal-versions", "driver, CUDA, NCCL, torch equal on all", "as `versions`", across=versions, needs="nodes"),
    Probe("equal-settings", "MTU, PFC, modes, limits equal on all", "as `mtu`, `pfc`, `gpu-modes`", across=settings,
         needs="nodes"),
    Probe("equal-environment", "variables equal on all", "environment of each host", across=variables, needs="nodes"),
    Probe("clock-skew", "clocks of the hosts agree", "messages under torchrun, chronyc", across=clocks, needs="nodes"),
    Probe("rail-alignment", "NIC i of every host on leaf i", "lldpctl, ibnetdiscover", across=leaves, needs="nodes"),
))  # fmt: skip
