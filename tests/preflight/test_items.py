"""Every item on a sound node, and on nodes with one thing wrong each."""

import pytest
from made_node import (
    BASE_VALUES,
    ECC_VALUES,
    GPUS,
    MODE_VALUES,
    PCIE_VALUES,
    POWER_VALUES,
    QOS,
    Made,
    ethtool,
    fabric,
    nvlink,
    nvlink_errors,
    table,
    topology,
)

from shardwise import Job, Policy, case_of, cluster_of, model_of, stack_of
from shardwise.run.preflight.check import checked, chosen
from shardwise.run.preflight.planned import PlannedJob, PlannedTraining
from shardwise.run.preflight.readers.smi import BASE, query
from shardwise.run.preflight.subjects import gpus, links

ONE_NODE = ("gpus", "links", "network", "counters", "software", "nccl", "host")
NOT_HERE = {"marks", "nccl-network"}
"""of those subjects, what needs a measurement"""


def planned(on: str = "dgx-h100:16", model: str = "llama-3-8b", **given) -> PlannedJob:
    cluster = cluster_of(on)
    policy = Policy(**{"tp": 8, "dp": cluster.gpus // 8, "zero": 1, "sp": True, **given})
    case = case_of(model_of(model), cluster, Job(seq=4096, global_batch=64), stack_of("megatron-core"))
    return PlannedJob(cluster, PlannedTraining(case, policy))


PLAN = planned()


def verdicts(made: Made, only=ONE_NODE, plan: PlannedJob | None = PLAN) -> dict:
    return {row.item: row for row in checked([made.recorded()], plan, chosen(only))}


def test_a_sound_node_passes_everything_that_can_be_looked_at():
    found = verdicts(Made())
    assert {
        item: (row.verdict, row.evidence)
        for item, row in found.items()
        if row.verdict != "pass" and item not in NOT_HERE
    } == {}
    assert {item for item, row in found.items() if row.verdict == "not available"} == NOT_HERE


def test_the_same_from_files_below_a_folder(tmp_path):
    live = Made().live(tmp_path)
    told = {row.item: row.verdict for row in checked([live], PLAN, chosen(ONE_NODE))}
    assert told == {item: row.verdict for item, row in verdicts(Made()).items()}


def test_on_infiniband_what_is_set_for_roce_is_not_looked_at():
    found = verdicts(Made(roce=False))
    assert {item for item, row in found.items() if row.verdict == "not available"} == NOT_HERE | {
        "pfc",
        "ecn",
        "roce-gid",
        "pauses",
    }
    assert found["rdma"].evidence == "8 active, InfiniBand"


CARD = "/sys/class/infiniband/mlx5_3"
LANE = "/sys/class/net/ens3"


def smi(fields, values, rows=GPUS):
    return {query(fields): (0, table(fields, values, rows))}


WRONG = {
    "one GPU fewer": (
        "gpu-count",
        "fail",
        {"folders": {"/proc/driver/nvidia/gpus": []}, "commands": smi(BASE, BASE_VALUES, 7)},
    ),
    "another GPU": ("gpu-count", "fail", {"commands": smi(BASE, BASE_VALUES | {"name": "NVIDIA A100-SXM4-80GB"})}),
    "a GPU is lost": (
        "gpu-count",
        "fail",
        {"commands": {query(BASE): (15, "Unable to determine the device handle for GPU0000:9B:00.0: Unknown Error\n")}},
    ),
    "someone holds memory": ("gpu-idle", "warn", {"commands": smi(BASE, BASE_VALUES | {"memory.used": 40000})}),
    "uncorrected SRAM": (
        "gpu-errors",
        "fail",
        {"commands": smi(gpus.ECC, ECC_VALUES | {"ecc.errors.uncorrected.volatile.sram": 1})},
    ),
    "old SRAM errors": (
        "gpu-errors",
        "warn",
        {"commands": smi(gpus.ECC, ECC_VALUES | {"ecc.errors.uncorrected.aggregate.sram": 2})},
    ),
    "many DRAM errors": (
        "gpu-errors",
        "fail",
        {"commands": smi(gpus.ECC, ECC_VALUES | {"ecc.errors.corrected.volatile.dram": 10**8})},
    ),
    "ECC not counted": ("gpu-errors", "not available", {"commands": smi(gpus.ECC, dict.fromkeys(gpus.ECC, "[N/A]"))}),
    "rows pending": (
        "gpu-rows",
        "fail",
        {"commands": {query(gpus.REMAPPED, "remapped-rows"): (0, "0, 0, 0\n" * 7 + "1, 0, 1\n")}},
    ),
    "remapping failed": (
        "gpu-rows",
        "fail",
        {"commands": {query(gpus.REMAPPED, "remapped-rows"): (0, "No, Yes, 9\n" * 8)}},
    ),
    "power brake": ("gpu-throttle", "fail", {"commands": {query(gpus.REASONS[:1]): (0, "0x0000000000000080\n" * 8)}}),
    "software thermal": (
        "gpu-throttle",
        "warn",
        {"commands": {query(gpus.REASONS[:1]): (0, "0x0000000000000020\n" * 8)}},
    ),
    "older driver's name": (
        "gpu-throttle",
        "fail",
        {
            "commands": {
                query(gpus.REASONS[:1]): (2, 'Field "clocks_event_reasons.active" is not a valid field to query.\n'),
                query(gpus.REASONS[1:]): (0, "0x0000000000000008\n" * 8),
            }
        },
    ),
    "capped": ("gpu-power", "warn", {"commands": smi(gpus.POWER, POWER_VALUES | {"power.limit": "500.00"})}),
    "MIG": ("gpu-modes", "fail", {"commands": smi(gpus.MODES, MODE_VALUES | {"mig.mode.current": "Enabled"})}),
    "ECC off": ("gpu-modes", "warn", {"commands": smi(gpus.MODES, MODE_VALUES | {"ecc.mode.current": "Disabled"})}),
    "fabric in progress": (
        "fabric-manager",
        "fail",
        {"commands": {"nvidia-smi -q": (0, fabric("In Progress", "N/A"))}},
    ),
    "no fabric manager": (
        "fabric-manager",
        "fail",
        {"commands": {"nvidia-smi -q": (0, ""), "systemctl is-active nvidia-fabricmanager": (3, "inactive\n")}},
    ),
    "xid 119 lately": (
        "xid",
        "fail",
        {
            "commands": {
                "dmesg": (
                    0,
                    "[999000.125000] NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s\n",
                )
            }
        },
    ),
    "xid 119 long ago": (
        "xid",
        "pass",
        {
            "commands": {
                "dmesg": (
                    0,
                    "[1000.125000] NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s\n",
                )
            }
        },
    ),
    "xid 63 lately": (
        "xid",
        "fail",
        {
            "commands": {
                "dmesg": (
                    0,
                    "[999500.0] NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked\n",
                )
            }
        },
    ),
    "xid of a program": (
        "xid",
        "warn",
        {"commands": {"dmesg": (0, "[999500.0] NVRM: Xid (PCI:0000:10:1c): 31, pid=1, MMU Fault\n")}},
    ),
    "a switch's error": (
        "xid",
        "warn",
        {
            "commands": {
                "dmesg": (
                    0,
                    "[999500.0] nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61 egress\n",
                )
            }
        },
    ),
    "a switch's fatal error": (
        "xid",
        "fail",
        {
            "commands": {
                "dmesg": (
                    0,
                    "[999500.0] nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n",
                )
            }
        },
    ),
    "log is for root": (
        "xid",
        "not available",
        {"commands": {"dmesg": (1, "dmesg: read kernel buffer failed: Operation not permitted\n")}},
    ),
    "DCGM watches nothing": (
        "dcgm-health",
        "not available",
        {"commands": {"dcgmi health -f": (0, "| PCIe   | Off  |\n| NVLINK | Off  |\n")}},
    ),
    "DCGM warns": ("dcgm-health", "warn", {"commands": {"dcgmi health -c": (0, "| Overall Health | Warning |\n")}}),
    "a pair over PCIe": (
        "gpu-topology",
        "fail",
        {"commands": {links.TOPOLOGY: (0, topology().replace("NV18", "PXB", 1))}},
    ),
    "all pairs over PCIe": ("gpu-topology", "fail", {"commands": {links.TOPOLOGY: (0, topology("PIX"))}}),
    "fewer NVLinks": ("gpu-topology", "fail", {"commands": {links.TOPOLOGY: (0, topology("NV16"))}}),
    "an NVLink is off": (
        "nvlink",
        "fail",
        {"commands": {links.RATES: (0, nvlink().replace("26.562 GB/s", "<inactive>", 1))}},
    ),
    "slow NVLinks": ("nvlink", "fail", {"commands": {links.RATES: (0, nvlink("13.281 GB/s"))}}),
    "NVLink of seven GPUs": ("nvlink", "not available", {"commands": {links.RATES: (0, nvlink(rows=7))}}),
    "NVLink replays": ("nvlink-errors", "warn", {"commands": {links.ERRORS: (0, nvlink_errors(replays=5))}}),
    "NVLink recovers": ("nvlink-errors", "fail", {"commands": {links.ERRORS: (0, nvlink_errors(recoveries=1))}}),
    "a GPU at x8": ("gpu-pcie", "fail", {"commands": smi(links.PCIE, PCIE_VALUES | {"pcie.link.width.current": 8})}),
    "a card at x8": ("nic-pcie", "fail", {"files": {f"{CARD}/device/current_link_width": "8"}}),
    "a card at Gen4": ("nic-pcie", "fail", {"files": {f"{CARD}/device/current_link_speed": "16.0 GT/s PCIe"}}),
    "the log of a narrow slot": (
        "nic-pcie",
        "fail",
        {
            "commands": {
                "dmesg": (
                    0,
                    "[5.0] mlx5_core: 252.056 Gb/s available PCIe bandwidth, limited by 32.0 GT/s PCIe x8\n",
                )
            }
        },
    ),
    "no card next to GPUs": (
        "nic-locality",
        "warn",
        {"commands": {links.TOPOLOGY: (0, topology().replace("PXB", "SYS"))}},
    ),
    "a card is down": ("nic-speed", "fail", {"files": {f"{CARD}/ports/1/state": "1: DOWN"}}),
    "a card at half speed": ("nic-speed", "fail", {"files": {f"{CARD}/ports/1/rate": "200 Gb/sec (4X HDR)"}}),
    "cards of half the plan": (
        "nic-speed",
        "fail",
        {"files": {f"/sys/class/infiniband/mlx5_{i}/ports/1/rate": "200 Gb/sec (4X HDR)" for i in range(8)}},
    ),
    "no card": ("nic-speed", "fail", {"folders": {"/sys/class/infiniband": []}}),
    "a port initialises": ("rdma", "fail", {"files": {f"{CARD}/ports/1/state": "2: INIT"}}),
    "no peermem": ("gpudirect", "warn", {"files": {"/proc/modules": "nvidia 56000000 9 - Live"}}),
    "dma-buf": (
        "gpudirect",
        "pass",
        {
            "files": {
                "/proc/modules": "nvidia 56000000 9 - Live",
                "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15",
            }
        },
    ),
    "one small MTU": ("mtu", "fail", {"files": {f"{LANE}/mtu": "1500"}}),
    "all small MTU": ("mtu", "warn", {"files": {f"/sys/class/net/ens{i}/mtu": "1500" for i in range(8)}}),
    "small on the wire": (
        "mtu",
        "warn",
        {"commands": {"ibv_devinfo": (0, "hca_id:\tmlx5_3\n\t\t\tactive_mtu:\t\t1024 (3)\n")}},
    ),
    "priority 0 pauses": (
        "pfc",
        "fail",
        {"commands": {f"mlnx_qos -i ens{i}": (0, QOS.replace("enabled     0", "enabled     1")) for i in range(8)}},
    ),
    "no priority pauses": (
        "pfc",
        "warn",
        {"commands": {f"mlnx_qos -i ens{i}": (0, QOS.replace("0   0   0   1", "0   0   0   0")) for i in range(8)}},
    ),
    "one interface differs": ("pfc", "fail", {"commands": {"mlnx_qos -i ens3": (0, QOS.replace("dscp", "pcp"))}}),
    "dcb in place of mlnx_qos": (
        "pfc",
        "pass",
        {
            "commands": {
                **{f"mlnx_qos -i ens{i}": None for i in range(8)},
                **{
                    f"dcb pfc show dev ens{i}": (
                        0,
                        "pfc-cap 8 macsec-bypass off delay 0 prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off\n",
                    )
                    for i in range(8)
                },
            }
        },
    ),
    "marking off": ("ecn", "fail", {"files": {f"{LANE}/ecn/roce_rp/enable/3": "0"}}),
    "only RoCE v1": (
        "roce-gid",
        "fail",
        {"files": {f"{CARD}/ports/1/gid_attrs/types/{n}": "IB/RoCE v1" for n in range(4)}},
    ),
    "a wrong GID index": ("roce-gid", "fail", {"environment": {"NCCL_IB_GID_INDEX": "2"}}),
    "carriers lost": ("link-flaps", "fail", {"commands": {"dmesg": (0, "[999500.0] ib0: lost carrier\n" * 6)}}),
    "a link went down once": ("link-flaps", "warn", {"files": {f"{CARD}/ports/1/counters/link_downed": "1"}}),
    "old discards": ("drops", "warn", {"files": {f"{CARD}/ports/1/counters/port_xmit_discards": "7"}}),
    "priority 0 was paused": ("pauses", "warn", {"commands": {"ethtool -S ens3": (0, ethtool(prio=0, pauses=9))}}),
    "torch for a newer CUDA": ("versions", "fail", {"packages": {"torch_cuda": "13.0"}}),
    "torch for a later CUDA": ("versions", "warn", {"packages": {"torch_cuda": "12.8"}}),
    "P2P off": ("nccl-env", "warn", {"environment": {"NCCL_P2P_DISABLE": "1"}}),
    "RDMA off": ("nccl-env", "fail", {"environment": {"NCCL_IB_DISABLE": "1"}}),
    "RDMA off in the file": ("nccl-env", "fail", {"files": {"/etc/nccl.conf": "# all hosts\nNCCL_IB_DISABLE=1\n"}}),
    "not as exported": ("nccl-env", "warn", {"environment": {"NCCL_CROSS_NIC": "2"}}),
    "a protocol forced": ("nccl-env", "warn", {"environment": {"NCCL_PROTO": "Simple"}}),
    "no such interface": ("nccl-binding", "fail", {"environment": {"NCCL_SOCKET_IFNAME": "enp9s0"}}),
    "no such card": ("nccl-binding", "fail", {"environment": {"NCCL_IB_HCA": "=mlx5_77"}}),
    "cards left out": ("nccl-binding", "warn", {"environment": {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}}),
    "little host memory": (
        "host-memory",
        "warn",
        {"files": {"/proc/meminfo": "MemTotal: 2113000000 kB\nMemAvailable: 90000000 kB"}},
    ),
    "swap on": (
        "swap",
        "warn",
        {"files": {"/proc/swaps": "Filename Type Size Used Priority\n/swapfile file 2097148 0 -2"}},
    ),
    "memlock": (
        "memlock",
        "fail",
        {"files": {"/proc/self/limits": "Max locked memory         65536                65536                bytes"}},
    ),
    "few files": (
        "open-files",
        "warn",
        {"files": {"/proc/self/limits": "Max open files            1024                 1048576              files"}},
    ),
    "small shm": ("shm", "warn", {"commands": {"df -P -k /dev/shm": (0, "shm 65536 0 65536 0% /dev/shm\n")}}),
    "a full disk": ("disks", "warn", {"commands": {"df -P -k": (0, "/dev/sda1 1000000 990000 10000 99% /\n")}}),
    "a dead mount": ("disks", "fail", {"commands": {"df -P -k": (124, "")}}),
    "powersave": (
        "governor",
        "warn",
        {"files": {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"}},
    ),
    "pages move": ("numa", "warn", {"files": {"/proc/sys/kernel/numa_balancing": "1"}}),
    "ACS on": ("acs", "warn", {"commands": {"lspci -vvv": (0, "\t\tACSCtl:\tSrcValid+ TransBlk-\n")}}),
    "ACS for root only": (
        "acs",
        "not available",
        {"commands": {"lspci -vvv": (0, "\tCapabilities: <access denied>\n")}},
    ),
    "small socket buffers": ("sockets", "warn", {"files": {"/proc/sys/net/core/rmem_max": "212992"}}),
    "clock seconds off": (
        "clock",
        "fail",
        {"commands": {"chronyc -n tracking": (0, "System time     : 9.5 seconds slow of NTP time\n")}},
    ),
    "no time server": (
        "clock",
        "warn",
        {"commands": {"chronyc -n tracking": None, "timedatectl show -p NTPSynchronized --value": (0, "no\n")}},
    ),
}
"""what is wrong -> the item that must say so, its verdict, and what the node says instead"""


def changed(change: dict) -> Made:
    made = Made()
    for part, values in change.items():
        getattr(made, part).update(values)
        for name in [name for name, value in values.items() if value is None]:
            del getattr(made, part)[name]
    return made


@pytest.mark.parametrize("wrong", WRONG)
def test_one_thing_wrong_is_told_by_its_item(wrong):
    item, verdict, change = WRONG[wrong]
    row = verdicts(changed(change), [item])[item]
    assert row.verdict == verdict, row.evidence
    if verdict in ("warn", "fail"):
        assert row.cure


def test_every_item_of_a_node_has_a_case_that_is_not_sound():
    items = {item.name for subject, item in chosen(ONE_NODE)} - NOT_HERE
    assert items == {item for item, _, _ in WRONG.values()}


def test_a_node_without_any_tool_passes_nothing_but_its_environment():
    bare = Made()
    bare.commands, bare.files, bare.folders, bare.environment, bare.packages = {}, {}, {}, {}, {}
    found = verdicts(bare, plan=None)
    assert {item for item, row in found.items() if row.verdict != "not available"} == {"nccl-env"}


def test_the_plan_is_held_against_the_node():
    found = verdicts(Made(), ["plan"])
    assert found["plan-memory"].verdict == "pass"
    assert found["plan-batch"].evidence.startswith("64 = dp 2 x micro 1 x 32")
    assert found["plan-tensor"].evidence == "groups of 8 inside an NVLink domain of 8"
    assert "data 8 x 2 (ranks 0, 8)" in found["plan-groups"].evidence
    assert found["plan-stages"].evidence == "one stage of 32 layers"
    assert "groups of 2 of 2 replicas (first ranks 0, 8)" in found["plan-sharding"].evidence
    assert found["plan-experts"].verdict == "pass"
    assert found["plan-rails"].verdict == "pass"
    full = changed({"commands": smi(BASE, BASE_VALUES | {"memory.used": 75000})})
    assert verdicts(full, ["plan"])["plan-memory"].verdict == "fail"
    assert verdicts(Made(), ["plan"], planned("dgx-h100:16", tp=16, dp=1))["plan-tensor"].verdict == "warn"
    job = planned("dgx-h100:64")
    assert verdicts(Made(), ["plan-size"], job)["plan-size"].verdict == "not available"
    assert verdicts(Made(), ["plan-size"], planned("8xh100"))["plan-size"].verdict == "pass"


def test_layers_shards_and_experts_of_a_plan_are_named():
    staged = planned("dgx-h100:64", tp=2, pp=5, dp=6)
    assert verdicts(Made(), ["plan-stages"], staged)["plan-stages"].evidence == "6, 2 x 7, 2 x 6 layers in 5 stages"
    sharded = planned("dgx-h100:64", tp=1, dp=64, zero=3, shard_group=8, sp=False)
    found = verdicts(Made(), ["plan-sharding"], sharded)["plan-sharding"]
    assert "groups of 8 of 64 replicas (first ranks 0, 1, 2, 3, .. 7)" in found.evidence
    assert found.verdict == "pass"
    mixed = planned("dgx-h100:64", tp=1, dp=64, ep=8, zero=1, sp=False, model="mixtral-8x7b")
    found = verdicts(Made(), ["plan-experts"], mixed)["plan-experts"]
    assert found.verdict == "pass"
    assert "8 experts, 1 on a rank (rank 0: 0, rank 1: 1" in found.evidence
