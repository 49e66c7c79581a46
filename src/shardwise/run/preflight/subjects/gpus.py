"""GPUs: how many and which, their memory, errors, clocks, power and modes, and what the kernel's log says of them."""

import re
from collections import Counter

from shardwise.run.preflight.finding import Finding, Probe, Subject, failed, few, passed, unknown, warned
from shardwise.run.preflight.limits import limit, listed
from shardwise.run.preflight.node import Node
from shardwise.run.preflight.planned import PlannedJob
from shardwise.run.preflight.readers.kernel_log import KEEP, LogEvent, events_of, is_log, uptime_of
from shardwise.run.preflight.readers.smi import DRIVER_GPUS, MIB, fabric_states, gpus_of, number_of, table
from shardwise.spec.reported import catalog_gpu
from shardwise.units import gib

MODES = ("persistence_mode", "ecc.mode.current", "mig.mode.current")
POWER = ("power.limit", "power.default_limit", "clocks.max.sm", "temperature.gpu")
ECC = tuple(
    f"ecc.errors.{kind}.{since}.{memory}"
    for kind in ("uncorrected", "corrected") for since in ("volatile", "aggregate") for memory in ("sram", "dram")
)  # fmt: skip
REMAPPED = ("remapped_rows.pending", "remapped_rows.failure", "remapped_rows.uncorrectable")
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""since driver 535.54, and before"""
SLOWED = {0x8: "hardware slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake"}
SLOWED_SOFTLY = {0x20: "software thermal slowdown"}
SWITCHES = "/proc/driver/nvidia-nvswitch/devices"
LOG = "dmesg"
_OVERALL = re.compile(r"Overall Health:?\s*\|?\s*([A-Za-z]{2,20})")
_WATCHED = re.compile(r"\|\s*On\s*\|")


def count(node: Node, plan: PlannedJob | None) -> Finding:
    rows = gpus_of(node)
    if isinstance(rows, Finding):
        return rows
    names = Counter(row["name"] for row in rows)
    told = ", ".join(f"{many} x {name}" for name, many in names.items())
    if len(names) > 1:
        return failed(told, "give the job nodes with one kind of GPU")
    if plan is None:
        return passed(told)
    if len(rows) != plan.host_gpus:
        return failed(f"{told}; planned {plan.host_gpus} a host", "drain the node, or plan for what it has")
    kind = catalog_gpu(next(iter(names)))
    if kind != plan.gpu.name:
        return failed(f"{told}; planned {plan.gpu.name}", "write --on with the GPUs that are here")
    return passed(f"{told}, as planned")


def idle(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    rows = gpus_of(node)
    if isinstance(rows, Finding):
        return rows
    used = {row["index"]: number_of(row["memory.used"]) for row in rows}
    if None in used.values():
        return unknown("memory.used of a GPU is not reported")
    busy = [name for name, mib in used.items() if (mib or 0.0) * MIB > limit("gpu.idle_used_bytes")]
    most = max(mib or 0.0 for mib in used.values()) * MIB
    if busy:
        return warned(f"GPU {few(busy)}: up to {gib(most)} GiB in use", "end what runs there (nvidia-smi shows it)")
    return passed(f"at most {gib(most)} GiB of a GPU in use")


def errors(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    rows = table(node, ECC)
    if isinstance(rows, Finding):
        return rows
    counts = [{name: number_of(cell) for name, cell in row.items()} for row in rows]
    if all(value is None for row in counts for value in row.values()):
        return unknown("these GPUs count no ECC errors, or ECC is off")

    def beyond(name: str, most: float) -> list[int]:
        return [gpu for gpu, row in enumerate(counts) if (row[f"ecc.errors.{name}"] or 0.0) > most]

    if bad := beyond("uncorrected.volatile.sram", 0):
        return failed(f"GPU {few(bad)}: uncorrected SRAM errors since the last reset", "drain it and run dcgmi diag")
    if bad := beyond("uncorrected.aggregate.sram", limit("gpu.sram_uncorrected")):
        return failed(f"GPU {few(bad)}: more than {limit('gpu.sram_uncorrected'):.0f} uncorrected SRAM errors",
                      "replace the GPU")  # fmt: skip
    for since in ("volatile", "aggregate"):
        if bad := beyond(f"corrected.{since}.sram", limit("gpu.sram_corrected")):
            return failed(f"GPU {few(bad)}: many corrected SRAM errors ({since})", "drain it and run dcgmi diag")
        if bad := [*beyond(f"corrected.{since}.dram", limit("gpu.dram_errors")),
                   *beyond(f"uncorrected.{since}.dram", limit("gpu.dram_errors"))]:  # fmt: skip
            return failed(f"GPU {few(bad)}: many DRAM errors ({since})", "drain it and run dcgmi diag")
    if bad := beyond("uncorrected.volatile.dram", 0):
        return warned(
            f"GPU {few(bad)}: uncorrected DRAM errors since the last reset", "reset the GPU: rows are exchanged"
        )
    old = beyond("uncorrected.aggregate.sram", 0)
    if old:
        return warned(f"GPU {few(old)}: uncorrected SRAM errors in its life", "watch it; beyond 4 it is exchanged")
    return passed("no uncorrected error, few corrected")


def remapped(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    rows = table(node, REMAPPED, "remapped-rows")
    if isinstance(rows, Finding):
        return rows
    if any(_yes(cell) is None for row in rows for cell in row.values()):
        return unknown("remapped rows are not reported for every GPU")
    for name, cure in ((REMAPPED[1], "replace the GPU"), (REMAPPED[0], "reset the GPU, so that rows are exchanged")):
        bad = [gpu for gpu, row in enumerate(rows) if _yes(row[name])]
        if bad:
            return failed(f"GPU {few(bad)}: {name.partition('.')[2]}", cure)
    many = [gpu for gpu, row in enumerate(rows) if (_yes(row[REMAPPED[2]]) or 0.0) > limit("gpu.remapped_rows")]
    if many:
        return failed(f"GPU {few(many)}: no spare rows are left", "replace the GPU")
    return passed("none pending, none failed")


def _yes(cell: str) -> float | None:
    return {"yes": 1.0, "no": 0.0}.get(cell.lower(), number_of(cell))


def throttled(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    rows = table(node, REASONS[:1])
    name = REASONS[0]
    if isinstance(rows, Finding) and "not a valid field" in rows.evidence:
        rows, name = table(node, REASONS[1:]), REASONS[1]
    if isinstance(rows, Finding):
        return rows
    masks = [_mask(row[name]) for row in rows]
    if None in masks:
        return unknown(f"{name} is not reported for every GPU")
    for reasons, verdict in ((SLOWED, failed), (SLOWED_SOFTLY, warned)):
        for bit, why in reasons.items():
            bad = [gpu for gpu, mask in enumerate(masks) if (mask or 0) & bit]
            if bad:
                return verdict(f"GPU {few(bad)}: {why}", "look at cooling, power supplies and their cables")
    return passed("clocks are held back by nothing but idleness or the power limit")


def _mask(cell: str) -> int | None:
    try:
        return int(cell, 16) if cell.startswith("0x") and len(cell) <= 18 else None
    except ValueError:
        return None


def capped(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    rows = table(node, POWER)
    if isinstance(rows, Finding):
        return rows
    told = [[number_of(row[name]) for name in POWER[:3]] for row in rows]
    if any(value is None for row in told for value in row[:2]):
        return unknown("power limits are not reported for every GPU")
    low = [gpu for gpu, (now, usual, _) in enumerate(told)
           if (now or 0.0) < (usual or 0.0) * limit("gpu.power_cap_share")]  # fmt: skip
    seen = sorted({now or 0.0 for now, _, _ in told})
    clocks = sorted({clock for _, _, clock in told if clock is not None})
    if low:
        return warned(f"GPU {few(low)}: capped at {seen[0]:.0f} W", "nvidia-smi -pl sets it, if it is not meant")
    if len(seen) > 1 or len(clocks) > 1:
        return warned(f"limits differ: {few([f'{each:.0f} W' for each in seen])}, {few(clocks)} MHz", "set them alike")
    return passed(f"{seen[0]:.0f} W" + (f", up to {clocks[0]:.0f} MHz" if clocks else ""))


def modes(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    rows = table(node, MODES)
    if isinstance(rows, Finding):
        return rows
    split = [gpu for gpu, row in enumerate(rows) if row[MODES[2]] == "Enabled"]
    if split:
        return failed(f"GPU {few(split)}: MIG is on", "nvidia-smi -mig 0: a job needs whole GPUs")
    unprotected = [gpu for gpu, row in enumerate(rows) if row[MODES[1]] == "Disabled"]
    if unprotected:
        return warned(f"GPU {few(unprotected)}: ECC is off", "nvidia-smi -e 1 and a reboot: errors stay silent")
    forgetful = [gpu for gpu, row in enumerate(rows) if row[MODES[0]] == "Disabled"]
    if forgetful:
        return warned(f"GPU {few(forgetful)}: persistence is off", "start nvidia-persistenced")
    if not all(row[MODES[0]] == "Enabled" for row in rows):
        return unknown("modes are not reported for every GPU")
    return passed("persistence on, MIG off, ECC " + ("on" if rows[0][MODES[1]] == "Enabled" else "not there"))


def fabric_manager(node: Node, plan: PlannedJob | None) -> Finding:
    switches = node.names(SWITCHES)
    printed = node.run("nvidia-smi -q", r"^\s+(Fabric|State|Status)\b")
    states = fabric_states(printed.text) if printed is not None else []
    wrong = [gpu for gpu, each in enumerate(states) if each not in (("Completed", "Success"), ("N/A", "N/A"))]
    if wrong:
        state = " ".join(states[wrong[0]])
        return failed(f"GPU {few(wrong)}: fabric {state}", "systemctl restart nvidia-fabricmanager, look at its log")
    service = node.run("systemctl is-active nvidia-fabricmanager")
    if service is not None and service.text.strip() == "active":
        return passed(f"running, {len(switches)} NVSwitches")
    if states and states[0] == ("Completed", "Success"):
        return passed("every GPU has joined its fabric")
    if switches:
        said = service.text.split() if service is not None else []
        return failed(f"{len(switches)} NVSwitches, nvidia-fabricmanager {said[0][:20] if said else 'not asked'}",
                      "systemctl enable --now nvidia-fabricmanager, of the driver's version")  # fmt: skip
    if printed is None:
        return unknown("nvidia-smi is not installed")
    needed = plan is not None and plan.nvlink and plan.host_gpus >= 8
    return unknown("no NVSwitch is seen", "load nvidia-nvswitch" if needed else "")


def log_events(node: Node) -> list[LogEvent] | Finding:
    printed = node.run(LOG, KEEP)
    if printed is None:
        return unknown("dmesg is not installed")
    if printed.code or not is_log(printed.text):
        return unknown("dmesg is not for this user, or empty", "sysctl kernel.dmesg_restrict=0, or ask as root")
    return events_of(printed.text, uptime_of(node.read("/proc/uptime")))


def xids(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    if not node.names(DRIVER_GPUS) and isinstance(rows := gpus_of(node), Finding):
        return rows
    events = log_events(node)
    if isinstance(events, Finding):
        return events
    hours = limit("log.xid_hours")
    recent = [each for each in events if each.age_s is None or each.age_s <= hours * 3600]
    bad = [each for each in recent if (each.kind == "xid" and each.code in listed("log.xid_fail"))
           or (each.kind == "sxid" and ", Fatal" in each.text)]  # fmt: skip
    if bad:
        told = f"{bad[-1].kind.upper().replace('XID', 'Xid')} {bad[-1].code} at {bad[-1].where}"
        return failed(f"{told}: {len(bad)} in {hours:.0f} h", "drain the node; NVIDIA's Xid catalog says what to do")
    others = [each for each in recent if each.kind in ("xid", "sxid")]
    if others:
        codes = sorted({each.code for each in others})
        own = all(each.kind == "xid" and each.code in listed("log.xid_warn") for each in others)
        cure = "often a program's own mistake; look who ran then" if own else "NVIDIA's Xid catalog says what it is"
        return warned(f"{'Xid' if own else 'Xid or SXid'} {few(codes)} in {hours:.0f} h", cure)
    return passed(f"none in {hours:.0f} h")


def health(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    printed = node.run("dcgmi health -c", r"Overall Health")
    if printed is None:
        return unknown("dcgmi is not installed", "install DCGM (datacenter-gpu-manager)")
    watched = node.run("dcgmi health -f", r"\|\s*(On|Off)\s*\|")
    overall = _OVERALL.search(printed.text)
    if printed.code or overall is None:
        return unknown("dcgmi health reported nothing", "is nv-hostengine running?")
    if watched is None or not _WATCHED.search(watched.text):
        return unknown("DCGM watches nothing, so it sees nothing", "dcgmi health -s a, a minute before")
    if overall[1] == "Healthy":
        return passed("healthy")
    return (warned if "Warn" in overall[1] else failed)(overall[1], "dcgmi health -c says of which GPU; drain it")


SUBJECT = Subject("gpus", 10, (
    Probe("gpu-count", "number and kind of GPUs", "nvidia-smi --query-gpu", count),
    Probe("gpu-idle", "nobody else holds their memory", "nvidia-smi --query-gpu=memory.used", idle),
    Probe("gpu-errors", "ECC errors", "nvidia-smi --query-gpu=ecc.errors.*", errors),
    Probe("gpu-rows", "rows of memory that were exchanged", "nvidia-smi --query-remapped-rows", remapped),
    Probe("gpu-throttle", "clocks that are held back", "nvidia-smi clocks_event_reasons.active", throttled),
    Probe("gpu-power", "power caps and clocks", "nvidia-smi --query-gpu=power.limit", capped),
    Probe("gpu-modes", "persistence, MIG, ECC mode", "nvidia-smi --query-gpu=mig.mode.current", modes),
    Probe("fabric-manager", "NVSwitches are managed", "systemctl, nvidia-smi -q", fabric_manager),
    Probe("xid", "errors the driver logged", "dmesg", xids),
    Probe("dcgm-health", "what DCGM's watch says", "dcgmi health -c, -f", health),
))  # fmt: skip
