"""Several nodes side by side, from their facts."""

import msgspec
import pytest
from made_node import BASE_VALUES, CARDS, QOS, TRACKING, Made, lldp, table
from test_items import PLAN, changed, planned

from shardwise.run.preflight.check import checked, chosen
from shardwise.run.preflight.facts import encoded, nodes_from, read_facts
from shardwise.run.preflight.readers.smi import BASE, query

HOSTS = ("node1", "node2", "node3", "node4")


def several(**changes: dict) -> list:
    """Four sound nodes; by host what one of them says instead."""
    nodes = []
    for host in HOSTS:
        made = changed(changes.get(host, {}))
        made.host = host
        nodes.append(made.recorded())
    return nodes


def told(nodes: list, *only: str, plan=PLAN) -> dict:
    return {row.item: row for row in checked(nodes, plan, chosen(only))}


def test_equal_nodes_pass():
    found = told(several(), "nodes")
    assert {item: row.verdict for item, row in found.items()} == dict.fromkeys(found, "pass")
    assert found["rail-alignment"].evidence == "NIC i of 4 hosts on one leaf each, 8 leaves"


@pytest.mark.parametrize(
    ("item", "verdict", "change", "said"),
    [
        ("equal-versions", "fail", {"packages": {"nccl": "2.26.2"}}, "nccl 2.27.3, but node3 2.26.2"),
        (
            "equal-versions",
            "warn",
            {"commands": {query(BASE): (0, table(BASE, BASE_VALUES | {"driver_version": "535.1"}))}},
            "driver 550.54.15, but node3 535.1",
        ),
        (
            "equal-versions",
            "warn",
            {"files": {f"/sys/class/infiniband/mlx5_{i}/fw_ver": "28.39.1" for i in range(8)}},
            "nic firmware 28.41.1000, but node3 28.39.1",
        ),
        (
            "equal-settings",
            "fail",
            {"files": {f"/sys/class/net/ens{i}/mtu": "1500" for i in range(8)}},
            "mtu 9000, but node3 1500",
        ),
        (
            "equal-settings",
            "fail",
            {"commands": {f"mlnx_qos -i ens{i}": (0, QOS.replace("0   0   0   1", "0   0   0   0")) for i in range(8)}},
            "pfc 3 dscp, but node3 none dscp",
        ),
        (
            "equal-settings",
            "warn",
            {"files": {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"}},
            "governor performance, but node3 powersave",
        ),
        (
            "equal-environment",
            "fail",
            {"environment": {"NCCL_IB_TIMEOUT": "22"}},
            "NCCL_IB_TIMEOUT not there, but node3 22",
        ),
        ("equal-hardware", "fail", {"folders": {"/sys/class/infiniband": [f"mlx5_{i}" for i in range(7)]}}, "node3"),
        (
            "clock-skew",
            "warn",
            {"commands": {"chronyc -n tracking": (0, TRACKING.replace("0.000012345", "0.5"))}},
            "between node1 and node3",
        ),
    ],
)
def test_the_node_that_differs_is_named(item, verdict, change, said):
    row = told(several(node3=change), item)[item]
    assert row.verdict == verdict, row.evidence
    assert said in row.evidence


def test_a_swapped_cable_names_both_ports():
    swapped = lldp(lambda i: f"leaf{ {2: 5, 5: 2}.get(i, i) }".replace(" ", ""))
    row = told(several(node2={"commands": {"lldpctl -f json": (0, swapped)}}), "rail-alignment")["rail-alignment"]
    assert row.verdict == "fail"
    assert "NIC 2 of node2 on leaf5" in row.evidence
    assert "NIC 5 of node2 on leaf2" in row.evidence


def test_rails_from_what_ibnetdiscover_prints():
    lines = []
    for leaf in range(CARDS):
        lines += [
            "",
            f'Switch\t64 "S-b8cef60300000{leaf:03d}"\t\t# "MF0;leaf{leaf}:MQM9700/U1" enhanced port 0 lid 1 lmc 0',
        ]
        for port, host in enumerate(HOSTS, 1):
            card = {2: 5, 5: 2}.get(leaf, leaf) if host == "node4" else leaf
            lines.append(
                f'[{port}]\t"H-b8cef6{port:03d}{leaf:04d}"[1](b8{port:04d}) \t\t# "{host} mlx5_{card}" lid {port} 4xNDR'
            )
    nodes = several(**{host: {"commands": {"lldpctl -f json": None}} for host in HOSTS})
    assert told(nodes, "rail-alignment")["rail-alignment"].verdict == "not available"
    nodes[0].measured.ibnetdiscover = "\n".join(lines)
    row = told(nodes, "rail-alignment")["rail-alignment"]
    assert row.verdict == "fail"
    assert "NIC 5 of node4 on leaf2 port 4, where NIC 2" in row.evidence


def test_one_leaf_for_all_cards_is_no_rail():
    one = {"commands": {"lldpctl -f json": (0, lldp(lambda _: "tor"))}}
    nodes = several(**dict.fromkeys(HOSTS, one))
    assert told(nodes, "rail-alignment")["rail-alignment"].verdict == "warn", "planned with eight rails"
    assert told(nodes, "rail-alignment", plan=None)["rail-alignment"].verdict == "pass"


def test_the_worst_of_several_counts_and_is_named():
    row = told(several(node2={"files": {"/proc/swaps": "Filename Type\n/swapfile file 1 0 -2"}}), "swap")["swap"]
    assert (row.verdict, row.hosts) == ("warn", ["node2"])
    assert row.evidence == "node2: on: /swapfile (1 of 4 hosts)"


def test_a_tool_that_one_node_lacks_is_no_pass():
    row = told(several(node4={"commands": {"nvidia-smi nvlink -s": None}}), "nvlink")["nvlink"]
    assert (row.verdict, row.hosts) == ("not available", ["node4"])


def test_plan_counts_all_hosts():
    assert told(several(), "plan-size", plan=planned("dgx-h100:32"))["plan-size"].verdict == "pass"
    assert told(several(), "plan-size", plan=planned("dgx-h100:64"))["plan-size"].verdict == "fail"
    assert told(several(), "plan-size", plan=planned("dgx-h100:16"))["plan-size"].verdict == "warn"


def test_facts_are_written_and_read_again(tmp_path):
    for node in several():
        (tmp_path / f"{node.host}.json").write_bytes(encoded(node.facts))
    again = nodes_from([tmp_path])
    assert [node.host for node in again] == list(HOSTS)
    assert told(again, "nodes", "gpus") == told(several(), "nodes", "gpus")
    newer = several()[1].facts
    (tmp_path / "late.json").write_bytes(encoded(msgspec.structs.replace(newer, time_s=9.0, packages={})))
    assert {node.host: len(node.packages) for node in nodes_from([tmp_path])}["node2"] == 0


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'{"shardwise_preflight": 1}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        encoded(Made().recorded().facts)[:-40],
        encoded(Made().recorded().facts).replace(b'"shardwise_preflight":1', b'"shardwise_preflight":7'),
        encoded(Made().recorded().facts).replace(b'"host":"node1"', b'"host":"\\u0007"'),
    ],
)
def test_damaged_facts_are_refused_in_one_line(raw, tmp_path):
    path = tmp_path / "node.json"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"gather: 'node\.json'") as told_:
        read_facts(path)
    assert "\n" not in str(told_.value)
