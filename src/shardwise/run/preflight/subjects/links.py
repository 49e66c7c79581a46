"""Links inside a node: NVLink between GPUs, PCIe to GPUs and cards, and which card lies next to which GPU."""

from itertools import combinations

from shardwise.programs.importers.nvidia_smi import NEAR, DeviceMatrix, parse_matrix
from shardwise.run.preflight.finding import Finding, Probe, Subject, failed, few, passed, unknown, warned
from shardwise.run.preflight.node import Node
from shardwise.run.preflight.planned import PlannedJob
from shardwise.run.preflight.readers.cards import ROOT, cards_of, compute_cards, whole
from shardwise.run.preflight.readers.smi import gpus_of, link_errors, link_rates, number_of, table
from shardwise.run.preflight.subjects.gpus import log_events
from shardwise.spec.gpu import Gpu
from shardwise.spec.load import gpu_of
from shardwise.spec.reported import catalog_gpu

PCIE = ("pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max")
TOPOLOGY = "nvidia-smi topo -m"
RATES, ERRORS = "nvidia-smi nvlink -s", "nvidia-smi nvlink -e"


def known_gpu(node: Node) -> Gpu | None:
    """As the catalog describes the node's GPUs."""
    rows = gpus_of(node)
    name = None if isinstance(rows, Finding) else catalog_gpu(rows[0]["name"])
    return None if name is None else gpu_of(name)


def matrix(node: Node) -> DeviceMatrix | Finding:
    printed = node.run(TOPOLOGY)
    if printed is None:
        return unknown("nvidia-smi is not installed")
    try:
        return parse_matrix(printed.text.encode())
    except ValueError as problem:
        return unknown(f"nvidia-smi topo -m: {str(problem).removeprefix('from: ').partition(';')[0]}")


def topology(node: Node, plan: PlannedJob | None) -> Finding:
    found = matrix(node)
    if isinstance(found, Finding):
        return found
    pairs = {(one, other): found.between(one, other) for one, other in combinations(found.gpus, 2)}
    if not pairs:
        return passed("one GPU: nothing to join")
    chip = known_gpu(node)
    linked = {pair: cell for pair, cell in pairs.items() if cell.startswith("NV")}
    meant = (plan is not None and plan.nvlink) or (chip is not None and chip.nvlink is not None)
    if not linked:
        ways = ", ".join(sorted(set(pairs.values())))
        if meant:
            return failed(f"no pair is joined by NVLink ({ways})", "start the fabric manager, reboot; else replace")
        return passed(f"GPUs joined over PCIe ({ways})")
    away = [f"{one}-{other} {cell}" for (one, other), cell in pairs.items() if not cell.startswith("NV")]
    most = max(int(cell[2:]) for cell in linked.values())
    switched = most >= 4 and not away
    if away and (switched or most >= 4):
        return failed(f"without NVLink: {few(away)}", "start the fabric manager, reboot; else replace the GPU")
    narrow = [f"{one}-{other} {cell}" for (one, other), cell in linked.items() if int(cell[2:]) < most]
    if switched and narrow:
        return failed(f"fewer links than the others (NV{most}): {few(narrow)}", "reset the GPUs; else replace")
    expected = chip.nvlink.links if chip is not None and chip.nvlink is not None else most
    if switched and most < expected:
        return failed(f"NV{most} between GPUs; a {chip.name if chip else 'GPU'} has {expected}", "reset the GPUs")
    return passed(
        f"all {len(pairs)} pairs joined by NVLink, NV{most}" if not away else f"{len(linked)} pairs by NVLink"
    )


def nvlinks(node: Node, plan: PlannedJob | None) -> Finding:
    printed = node.run(RATES)
    if printed is None:
        return unknown("nvidia-smi is not installed")
    rates, chip = link_rates(printed.text), known_gpu(node)
    links = [rate for row in rates.values() for rate in row]
    needed = (plan is not None and plan.nvlink) or (chip is not None and chip.nvlink is not None)
    if not links:
        if needed and not printed.code and "GPU" in printed.text:
            return failed("no link is reported for any GPU", "start the fabric manager; look at nvidia-smi nvlink -s")
        return unknown("no NVLink is reported")
    down = [f"GPU {gpu} link {link}" for gpu, row in rates.items() for link, rate in enumerate(row) if rate is None]
    if down:
        return failed(f"inactive: {few(down)}", "reset the GPU and its switch; else replace")
    rows = gpus_of(node)
    if not isinstance(rows, Finding) and len(rates) < len(rows):
        return unknown(f"links of {len(rates)} of {len(rows)} GPUs are reported")
    counts, speeds = sorted({len(row) for row in rates.values()}), sorted({rate or 0.0 for rate in links})
    if len(counts) > 1 or speeds[0] < 0.9 * speeds[-1]:
        return failed(f"GPUs have {few(counts)} links of {few(speeds)} GB/s", "reset the slower; else replace")
    expected = chip.nvlink if chip is not None else None
    if expected is not None and (counts[0] < expected.links or speeds[0] * 1e9 < 0.95 * expected.link_bandwidth):
        return failed(f"{counts[0]} links of {speeds[0]:g} GB/s; expected {expected.links} of "
                      f"{expected.link_bandwidth / 1e9:g}", "reset the GPUs; else replace")  # fmt: skip
    return passed(f"{counts[0]} links of {speeds[0]:g} GB/s on each of {len(rates)} GPUs")


def nvlink_errors(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    printed = node.run(ERRORS)
    if printed is None:
        return unknown("nvidia-smi is not installed")
    counts = link_errors(printed.text)
    if not any(counts.values()):
        return unknown("no NVLink counter is reported")
    found = [f"GPU {gpu}: {many} {kind}" for gpu, kinds in counts.items() for kind, many in kinds.items() if many]
    recovered = [each for each in found if "recovery" in each]
    if recovered:
        return failed(few(recovered), "a link went down and came back: reset the GPU; else replace")
    if found:
        return warned(few(found), "look again after the measuring: a count that grows is a bad link")
    return passed(f"all counters of {len(counts)} GPUs at 0")


def gpu_pcie(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    rows = table(node, PCIE)
    if isinstance(rows, Finding):
        return rows
    told = [[number_of(cell) for cell in row.values()] for row in rows]
    if any(value is None for row in told for value in row):
        return unknown("PCIe is not reported for every GPU")
    narrow = [f"GPU {gpu} x{now:.0f} of x{most:.0f}" for gpu, (_, now, most) in enumerate(told) if now < most]  # type: ignore[operator]
    if narrow:
        return failed(few(narrow), "reseat the NIC or its riser")
    slow = {gen for gen, _, _ in told}
    if len(slow) > 1:
        return warned(f"generations differ: {few(sorted(filter(None, slow)))}", "look at the slots in the BIOS")
    return passed(f"generation {told[0][0]:.0f}, x{told[0][1]:.0f} on all {len(told)}")


def card_pcie(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    cards = compute_cards(cards_of(node))
    if not cards:
        return unknown("no RDMA NIC")
    bad, told = [], []
    for card in cards:
        at = f"{ROOT}/{card.name}/device"
        speed, most_speed = (node.read(f"{at}/{each}_link_speed") or "" for each in ("current", "max"))
        width, most = (whole(node.read(f"{at}/{each}_link_width")) for each in ("current", "max"))
        if width is None or most is None or not speed:
            continue
        told.append(f"{speed.removesuffix(' PCIe')} x{width}")
        if width < most or (most_speed and _transfers(speed) < _transfers(most_speed)):
            bad.append(f"{card.name} {told[-1]} of {most_speed.removesuffix(' PCIe')} x{most}")
    events = log_events(node)
    limited = [] if isinstance(events, Finding) else [each.text for each in events if each.kind == "narrow"]
    if bad or limited:
        return failed(few([*bad, *limited]), "reseat the NIC or its riser; look at the slot in the BIOS")
    if len(told) < len(cards):
        return unknown(f"the PCIe link of {len(told)} of {len(cards)} NICs is reported")
    return passed(f"{', '.join(sorted(set(told)))} on {len(told)} NICs")


def _transfers(speed: str) -> float:
    return number_of(speed) or 0.0


def card_locality(node: Node, plan: PlannedJob | None) -> Finding:
    found = matrix(node)
    if isinstance(found, Finding):
        return found
    if not found.nics:
        needed = plan is not None and plan.networked
        return warned("no NIC in the matrix", "NCCL will use sockets") if needed else unknown("no NIC")
    fast = {card.name for card in compute_cards(cards_of(node))}
    nics = [nic for nic in found.nics if not fast or found.legend.get(nic, nic) in fast]
    near = {gpu: [nic for nic in nics if found.between(gpu, nic) in NEAR] for gpu in found.gpus}
    lonely = [gpu for gpu, cards in near.items() if not cards]
    if len(lonely) == len(near):
        return warned("no GPU has a NIC under its PCIe switch", "as in virtual machines: give NCCL_TOPO_FILE")
    if lonely:
        return warned(f"no NIC next to {few(lonely)}", "its traffic crosses the CPU; look at slots and NCCL_TOPO_FILE")
    own = {gpu: cards[0] for gpu, cards in near.items()}
    shared = (
        len(nics) >= len(near) and len(set(own.values())) < len(own) and all(len(each) == 1 for each in near.values())
    )
    if shared:
        return warned("GPUs share a NIC while others have none", "look at the slots of the NICs")
    ends = [(card.name, card.numa) for card in compute_cards(cards_of(node))]
    strays = [name for name, numa in ends if numa is None] if ends else []
    memory = f", NUMA node unknown of {few(strays)}" if strays else ""
    return passed(f"every GPU has a NIC under its PCIe switch{memory}")


SUBJECT = Subject("links", 20, (
    Probe("gpu-topology", "every pair of GPUs joined as it should", TOPOLOGY, topology),
    Probe("nvlink", "NVLinks up, number and speed", RATES, nvlinks),
    Probe("nvlink-errors", "NVLinks that replay or recover", ERRORS, nvlink_errors),
    Probe("gpu-pcie", "PCIe width of the GPUs", "nvidia-smi --query-gpu=pcie.link.*", gpu_pcie),
    Probe("nic-pcie", "PCIe speed and width of the NICs", "/sys/class/infiniband/*/device", card_pcie),
    Probe("nic-locality", "each GPU has its NIC next to it", TOPOLOGY, card_locality),
))  # fmt: skip
