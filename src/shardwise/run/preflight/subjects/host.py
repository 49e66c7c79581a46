"""The host around the GPUs: memory, limits, shared memory, disks, processors, PCIe isolation, clock."""

from shardwise.run.preflight.finding import Finding, Probe, Subject, failed, few, passed, unknown, warned
from shardwise.run.preflight.limits import limit
from shardwise.run.preflight.node import TIMED_OUT, Node
from shardwise.run.preflight.planned import PlannedJob
from shardwise.run.preflight.readers.cards import cards_of, compute_cards, whole
from shardwise.run.preflight.readers.clock import ntp_offset
from shardwise.run.preflight.readers.host import UNLIMITED, isolating_bridges, limits_of, memory_of, mounts_of
from shardwise.run.preflight.readers.smi import DRIVER_GPUS
from shardwise.units import gib

CPUS = "/sys/devices/system/cpu"
DISKS = "df -P -k"
SHM = "df -P -k /dev/shm"
NO_DISKS = ("/snap", "/boot", "/run", "/dev", "/sys", "/proc", "/etc", "/mnt/cdrom")
"""mounts that nothing of a job is written to"""


def memory(node: Node, plan: PlannedJob | None) -> Finding:
    found = memory_of(node.read("/proc/meminfo") or "")
    total, free = found.get("MemTotal"), found.get("MemAvailable")
    if total is None or free is None:
        return unknown("/proc/meminfo does not report it")
    told = f"{gib(free)} of {gib(total)} GiB free"
    if plan is None:
        return passed(told) if free > 0.5 * total else warned(told, "end what holds it before a job starts")
    training = plan.training
    needed = training.report.host_bytes * plan.host_gpus if training is not None else 0.0
    if needed > free:
        return failed(f"{told}; the plan moves {gib(needed)} GiB to it", "offload less, or take hosts with more")
    reserve = limit("plan.host_reserve_share") * total
    if needed + reserve > free:
        return warned(f"{told}; the plan moves {gib(needed)} GiB to it", "end what holds the rest")
    return passed(told + (f", the plan moves {gib(needed)} GiB to it" if needed else ""))


def swap(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    text = node.read("/proc/swaps")
    if text is None or not text.startswith("Filename"):
        return unknown("/proc/swaps does not report it")
    files = [line.split()[0] for line in text.splitlines()[1:] if line.split()]
    if files:
        return warned(f"on: {few(files)}", "swapoff -a: a rank that swaps holds up all others")
    return passed("off")


def locked(node: Node, plan: PlannedJob | None) -> Finding:
    found = limits_of(node.read("/proc/self/limits") or "")
    most = found.get("Max locked memory")
    if most is None:
        return unknown("/proc/self/limits does not report it")
    if most == UNLIMITED:
        return passed("unlimited")
    told = f"{most / 2**10:,.0f} KiB"
    cure = "ulimit -l unlimited (limits.conf, LimitMEMLOCK=infinity, docker --ulimit memlock=-1)"
    if compute_cards(cards_of(node)):
        return failed(f"{told}: RDMA cannot register memory", cure)
    return warned(told, cure) if plan is not None and plan.networked else passed(f"{told}, no RDMA NIC needs more")


def open_files(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    most = limits_of(node.read("/proc/self/limits") or "").get("Max open files")
    if most is None:
        return unknown("/proc/self/limits does not report it")
    told = "unlimited" if most == UNLIMITED else f"{most:,.0f}"
    if most < limit("host.open_files"):
        return warned(told, f"ulimit -n {limit('host.open_files'):.0f}")
    return passed(told)


def shared(node: Node, plan: PlannedJob | None) -> Finding:
    printed = node.run(SHM)
    found = mounts_of(printed.text) if printed is not None else []
    if not found:
        return unknown("df does not report /dev/shm")
    gpus = plan.host_gpus if plan is not None else max(len(node.names(DRIVER_GPUS)), 1)
    needed = limit("host.shm_bytes_per_gpu") * gpus
    told = f"{gib(found[0].free_bytes)} of {gib(found[0].total_bytes)} GiB free"
    if found[0].free_bytes < needed:
        return warned(f"{told}, {gpus} GPUs", f"docker --shm-size={max(int(needed / 2**30), 1)}g, or --ipc=host")
    return passed(told)


def disks(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    printed = node.run(DISKS)
    if printed is not None and printed.code == TIMED_OUT:
        return failed("df does not come back", "a mount is dead: look at NFS, Lustre and their servers")
    found = [mount for mount in mounts_of(printed.text if printed is not None else "")
             if not mount.at.startswith(NO_DISKS)]  # fmt: skip
    if not found:
        return unknown("df reports no disk")
    full = [f"{mount.at} {mount.full:.0%}" for mount in found if mount.full > limit("host.disk_full")]
    if full:
        return warned(f"full: {few(full)}", "make room: logs and checkpoints end a run on a full disk")
    return passed(f"{len(found)} mounts, the fullest {max(mount.full for mount in found):.0%}")


def governor(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    cores = [name for name in node.names(CPUS) if name[:3] == "cpu" and name[3:].isdecimal()]
    found = {node.read(f"{CPUS}/{core}/cpufreq/scaling_governor") for core in (*cores[:1], *cores[-1:])}
    if not found or None in found:
        return unknown("the processors report no governor (virtual machines do not)")
    if found != {"performance"}:
        return warned(few(sorted(str(each) for each in found)), "cpupower frequency-set -g performance")
    return passed("performance")


def numa(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    nodes = [name for name in node.names("/sys/devices/system/node") if name[:4] == "node" and name[4:].isdecimal()]
    if not nodes:
        return unknown("no NUMA node is reported")
    balancing = node.read("/proc/sys/kernel/numa_balancing")
    told = f"{len(nodes)} NUMA nodes" if len(nodes) > 1 else "1 NUMA node"
    if balancing not in (None, "0") and len(nodes) > 1:
        return warned(f"{told}, pages are moved between them", "sysctl kernel.numa_balancing=0")
    return passed(told)


def isolation(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    if not node.names(DRIVER_GPUS):
        return unknown("no GPU of NVIDIA")
    printed = node.run("lspci -vvv", r"ACSCtl:|<access denied>")
    if printed is None:
        return unknown("lspci is not installed", "install pciutils")
    sending, told = isolating_bridges(printed.text)
    if not told:
        denied = "access denied" in printed.text
        return unknown("lspci shows capabilities to root only" if denied else "no bridge reports ACS")
    if sending and "hypervisor" in (node.read("/proc/cpuinfo") or "")[:20_000]:
        return unknown(f"{sending} of {told} bridges isolate, as virtual machines need")
    if sending:
        return warned(
            f"{sending} of {told} bridges send peer traffic to the CPU", "switch ACS off in the BIOS or by setpci"
        )
    return passed(f"ACS is off on {told} bridges")


def sockets(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    sizes = {name: whole(node.read(f"/proc/sys/net/core/{name}")) for name in ("rmem_max", "wmem_max")}
    if None in sizes.values():
        return unknown("/proc/sys/net/core does not report it")
    small = [f"{name} {size:,}" for name, size in sizes.items() if (size or 0) < limit("host.socket_buffer_bytes")]
    if small:
        return warned(few(small), f"sysctl net.core.rmem_max={limit('host.socket_buffer_bytes'):.0f} and wmem_max")
    return passed(", ".join(f"{name} {size:,}" for name, size in sizes.items()))


def clock(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    printed = node.run("chronyc -n tracking")
    offset = ntp_offset(printed.text) if printed is not None and not printed.code else None
    if offset is None:
        told = node.run("timedatectl show -p NTPSynchronized --value")
        said = told.text.strip() if told is not None and not told.code else ""
        if said == "yes":
            return passed("the clock follows a time server")
        if said == "no":
            return warned("the clock follows no time server", "start chronyd or systemd-timesyncd")
        return unknown("neither chronyc nor timedatectl reports it")
    if abs(offset) > limit("host.clock_fail_s"):
        return failed(f"{offset:+.3g} s off", "chronyc makestep, as root")
    if abs(offset) > limit("host.clock_skew_s"):
        return warned(f"{offset:+.3g} s off", "look at chronyc sources")
    return passed(f"{offset * 1e3:+.3g} ms off its time servers")


SUBJECT = Subject("host", 70, (
    Probe("host-memory", "memory of the host for this plan", "/proc/meminfo", memory),
    Probe("swap", "swapping is off", "/proc/swaps", swap),
    Probe("memlock", "memory that may be locked for RDMA", "/proc/self/limits", locked),
    Probe("open-files", "files and sockets a process may open", "/proc/self/limits", open_files),
    Probe("shm", "shared memory for loaders and NCCL", SHM, shared),
    Probe("disks", "room on disks, mounts that answer", DISKS, disks),
    Probe("governor", "processors run at full clock", "cpufreq/scaling_governor", governor),
    Probe("numa", "NUMA nodes, pages stay where they are", "/sys/devices/system/node", numa),
    Probe("acs", "PCIe peers may talk directly", "lspci -vvv", isolation),
    Probe("sockets", "buffers of sockets", "/proc/sys/net/core", sockets),
    Probe("clock", "clock follows a time server", "chronyc tracking, timedatectl", clock),
))  # fmt: skip
