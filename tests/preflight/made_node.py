"""A node with eight H100 and eight 400 Gb/s cards, as its tools would describe it: written for the tests, in the
forms that nvidia-smi, sysfs, mlnx_qos, ibv_devinfo, chronyc, lldpctl and dmesg print."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shardwise.run.preflight.facts import VERSION, Facts, RecordedNode
from shardwise.run.preflight.measurements import Measurements
from shardwise.run.preflight.node import LiveNode, Printed, kept_of
from shardwise.run.preflight.readers.cards import COUNTERS
from shardwise.run.preflight.readers.smi import BASE, query
from shardwise.run.preflight.subjects import gpus, links

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "importers"))
from topology_files import matrix

GPUS = CARDS = 8
NAME = "NVIDIA H100 80GB HBM3"
KEPT = {
    "nvidia-smi -q": r"^\s+(Fabric|State|Status)\b", "nvidia-smi": r"CUDA (?:UMD )?Version\s*:\s*(\d{1,3}\.\d{1,3})",
}  # fmt: skip
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
"""
QOS = """DCBX mode: OS controlled
Priority trust state: dscp
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   0   0   0   0
\tbuffer      0   0   0   1   0   0   0   0
"""
TRACKING = """Reference ID    : 0A000001 (10.0.0.1)
Stratum         : 3
System time     : 0.000012345 seconds fast of NTP time
Leap status     : Normal
"""
DISKS = """Filesystem     1024-blocks      Used Available Capacity Mounted on
/dev/nvme0n1p1  1000000000 400000000 600000000      40% /
tmpfs           1056000000         0 1056000000       0% /dev/shm
server:/home    9000000000 900000000 8100000000      10% /home
"""
LOG = """[    0.000000] Linux version 5.15.0
[   12.500000] nvidia-nvswitch: loaded
[  100.250000] mlx5_core 0000:19:00.0 ens1: Link up
"""


def table(fields: tuple[str, ...], values: Mapping[str, object], rows: int = GPUS) -> str:
    return (
        "\n".join(", ".join(str(values.get(name, 0)).replace("{i}", str(i)) for name in fields) for i in range(rows))
        + "\n"
    )


BASE_VALUES = {
    "index": "{i}", "name": NAME, "uuid": "GPU-0000-{i}", "pci.bus_id": "00000000:1{i}:00.0",
    "driver_version": "550.54.15",
    "vbios_version": "96.00.61.00.01", "memory.total": 81559, "memory.used": 4,
}  # fmt: skip
ECC_VALUES = dict.fromkeys(gpus.ECC, 0)
POWER_VALUES = {"power.limit": "700.00", "power.default_limit": "700.00", "clocks.max.sm": 1980, "temperature.gpu": 31}
MODE_VALUES = {"persistence_mode": "Enabled", "ecc.mode.current": "Enabled", "mig.mode.current": "Disabled"}
PCIE_VALUES = {"pcie.link.gen.max": 5, "pcie.link.width.current": 16, "pcie.link.width.max": 16}


def nvlink(line: str = "26.562 GB/s", rows: int = GPUS, links_of: int = 18) -> str:
    lines = []
    for gpu in range(rows):
        lines.append(f"GPU {gpu}: {NAME} (UUID: GPU-0000-{gpu})")
        lines += [f"\t Link {link}: {line}" for link in range(links_of)]
    return "\n".join(lines) + "\n"


def nvlink_errors(replays: int = 0, recoveries: int = 0) -> str:
    lines = []
    for gpu in range(GPUS):
        lines.append(f"GPU {gpu}: {NAME} (UUID: GPU-0000-{gpu})")
        for link in range(18):
            count = (replays, recoveries) if (gpu, link) == (3, 2) else (0, 0)
            lines += [f"\t Link {link}: Replay Errors: {count[0]}", f"\t Link {link}: Recovery Errors: {count[1]}",
                      f"\t Link {link}: CRC Errors: 0"]  # fmt: skip
    return "\n".join(lines) + "\n"


def topology(cell: str = "NV18") -> str:
    legend = "\n".join(f"  NIC{i}: mlx5_{i}" for i in range(CARDS))
    return matrix(cell, GPUS, CARDS).partition("NIC Legend:")[0] + f"NIC Legend:\n{legend}\n"


def fabric(state: str = "Completed", status: str = "Success") -> str:
    each = f"    Fabric\n        State             : {state}\n        Status            : {status}\n"
    return "GPU 00000000:1B:00.0\n    Product Name : H100\n" + each * GPUS


def lldp(leaf: Callable[[int], str] = lambda i: f"leaf{i}") -> str:
    rows = ",".join(
        f'{{"ens{i}": {{"via": "LLDP", "chassis": {{"{leaf(i)}": {{"id": {{"type": "mac", "value": "00:11"}}}}}}, '
        f'"port": {{"id": {{"type": "ifname", "value": "Ethernet{i}"}}}}}}}}' for i in range(CARDS)
    )  # fmt: skip
    return f'{{"lldp": {{"interface": [{rows}]}}}}'


@dataclass
class Made:
    """What the node says; tests change it."""

    host: str = "node1"
    roce: bool = True
    commands: dict[str, tuple[int, str]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    folders: dict[str, list[str]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    measured: Measurements = field(default_factory=Measurements)

    def __post_init__(self) -> None:
        self.commands |= {
            query(BASE): (0, table(BASE, BASE_VALUES)), query(gpus.ECC): (0, table(gpus.ECC, ECC_VALUES)),
            query(gpus.POWER): (0, table(gpus.POWER, POWER_VALUES)),
            query(gpus.MODES): (0, table(gpus.MODES, MODE_VALUES)),
            query(links.PCIE): (0, table(links.PCIE, PCIE_VALUES)), query(("name",)): (0, f"{NAME}\n" * GPUS),
            query(gpus.REASONS[:1]): (0, "0x0000000000000001\n" * GPUS),
            query(gpus.REMAPPED, "remapped-rows"): (0, "0, 0, 0\n" * GPUS),
            links.TOPOLOGY: (0, topology()), links.RATES: (0, nvlink()), links.ERRORS: (0, nvlink_errors()),
            "nvidia-smi": (0, "| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4  |\n"),
            "nvidia-smi -q": (0, fabric()), "systemctl is-active nvidia-fabricmanager": (0, "active\n"),
            "dcgmi health -c": (0, "| Health Monitor Report |\n| Overall Health | Healthy |\n"),
            "dcgmi health -f": (0, "| Health monitor systems report |\n| PCIe   | On   |\n| NVLINK | On   |\n"),
            "dmesg": (0, LOG), "ofed_info -s": (0, "MLNX_OFED_LINUX-24.01-0.3.3.1:\n"),
            "ibv_devinfo": (0, "".join(f"hca_id:\tmlx5_{i}\n\t\t\tactive_mtu:\t\t4096 (5)\n" for i in range(CARDS))),
            "df -P -k": (0, DISKS), "df -P -k /dev/shm": (0, "".join(DISKS.splitlines(keepends=True)[::2])),
            "lspci -vvv": (0, "\tCapabilities: [150]\n\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir-\n" * 4),
            "chronyc -n tracking": (0, TRACKING), "lldpctl -f json": (0, lldp()),
            **{f"mlnx_qos -i ens{i}": (0, QOS) for i in range(CARDS)},
            **{f"ethtool -S ens{i}": (0, ethtool()) for i in range(CARDS)},
        }  # fmt: skip
        self.files |= {
            "/proc/uptime": "1000000.50 7000000.00",
            "/proc/modules": "nvidia_peermem 16384 0 - Live\nnvidia 56000000 9 - Live",
            "/proc/sys/kernel/osrelease": "5.15.0-1042",
            "/proc/driver/nvidia/version": "NVRM version: NVIDIA 550.54.15",
            "/proc/meminfo": "MemTotal:       2113000000 kB\nMemAvailable:   2000000000 kB",
            "/proc/swaps": "Filename Type Size",
            "/proc/self/limits": LIMITS, "/proc/sys/kernel/numa_balancing": "0", "/proc/cpuinfo": "flags : fpu vme",
            "/proc/sys/net/core/rmem_max": "16777216", "/proc/sys/net/core/wmem_max": "16777216",
            "/sys/class/net/eth0/operstate": "up",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
            "/sys/devices/system/cpu/cpu111/cpufreq/scaling_governor": "performance",
        }  # fmt: skip
        self.folders |= {
            "/proc/driver/nvidia/gpus": [f"0000:1{i}:00.0" for i in range(GPUS)],
            "/proc/driver/nvidia-nvswitch/devices": [f"0000:8{i}:00.0" for i in range(4)],
            "/sys/devices/system/cpu": ["cpu0", "cpu111", "cpufreq"], "/sys/devices/system/node": ["node0", "node1"],
            "/sys/class/infiniband": [f"mlx5_{i}" for i in range(CARDS)],
            "/sys/class/net": ["lo", "eth0", *(f"ens{i}" for i in range(CARDS))],
        }  # fmt: skip
        self.environment |= {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_CROSS_NIC": "0", "NCCL_PXN_DISABLE": "0",
                             "NCCL_COLLNET_ENABLE": "1", "NCCL_NVLS_ENABLE": "1"}  # fmt: skip
        self.packages |= {"python": "3.11.9", "torch": "2.13.0+cu124", "torch_cuda": "12.4", "nccl": "2.27.3"}
        for i in range(CARDS):
            self._card(i)

    def _card(self, i: int) -> None:
        at, lane = f"/sys/class/infiniband/mlx5_{i}", f"/sys/class/net/ens{i}"
        self.folders |= {f"{at}/device/net": [f"ens{i}"], f"{at}/ports/1/gid_attrs/types": ["0", "1", "2", "3"]}
        self.files |= {
            f"{at}/ports/1/rate": "400 Gb/sec (4X NDR)", f"{at}/ports/1/state": "4: ACTIVE",
            f"{at}/ports/1/phys_state": "5: LinkUp",
            f"{at}/ports/1/link_layer": "Ethernet" if self.roce else "InfiniBand",
            f"{at}/fw_ver": "28.41.1000", f"{at}/device/numa_node": str(i // 4),
            f"{at}/device/current_link_speed": "32.0 GT/s PCIe", f"{at}/device/max_link_speed": "32.0 GT/s PCIe",
            f"{at}/device/current_link_width": "16", f"{at}/device/max_link_width": "16",
            f"{lane}/mtu": "9000", f"{lane}/operstate": "up", f"{lane}/ecn/roce_np/enable/3": "1",
            f"{lane}/ecn/roce_rp/enable/3": "1",
            **{f"{at}/ports/1/{name}": "0" for name in COUNTERS},
            **{f"{at}/ports/1/gid_attrs/types/{n}": "RoCE v2" if n % 2 else "IB/RoCE v1" for n in range(4)},
        }  # fmt: skip

    def runner(self, command: str, seconds: float) -> Printed | None:  # noqa: ARG002
        found = self.commands.get(command)
        return None if found is None else Printed(code=found[0], text=found[1])

    def recorded(self) -> RecordedNode:
        """As if its facts had been written and read again."""
        from shardwise.run.preflight.readers import cards, kernel_log

        keep = {**KEPT, "dmesg": kernel_log.KEEP, "lspci -vvv": "ACSCtl:|<access denied>"}
        keep |= {f"ethtool -S ens{i}": cards.KEEP_STATS for i in range(CARDS)}
        commands = {name: kept_of(Printed(code=code, text=text), keep.get(name, ""))
                    for name, (code, text) in self.commands.items()}  # fmt: skip
        return RecordedNode(
            Facts(shardwise_preflight=VERSION, host=self.host, time_s=1.0, commands=commands, files=dict(self.files),
                  folders=dict(self.folders), environment=dict(self.environment), packages=dict(self.packages),
                  measured=self.measured), self.host,
        )  # fmt: skip

    def live(self, root: Path) -> LiveNode:
        """The same as files below a folder, and a runner of commands."""
        for path, text in self.files.items():
            at = root / path.lstrip("/")
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_text(text + "\n")
        for path, names in self.folders.items():
            for name in names:
                at = root / path.lstrip("/") / name
                if not at.exists():
                    at.mkdir(parents=True)
        return LiveNode(root, self.runner, self.host, self.environment, self.packages, self.measured)


def ethtool(prio: int = 3, pauses: int = 0, discards: int = 0) -> str:
    lines = ["NIC statistics:", "     rx_packets: 12345", f"     rx_discards_phy: {discards}"]
    for each in range(8):
        count = pauses if each == prio else 0
        lines += [f"     rx_prio{each}_pause: {count}", f"     rx_prio{each}_pause_duration: {count * 1000}",
                  f"     tx_prio{each}_pause: 0", f"     rx_prio{each}_buf_discard: 0"]  # fmt: skip
    return "\n".join(lines) + "\n"
