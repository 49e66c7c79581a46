"""`shardwise fabric expect` as a user runs it."""

import csv
import json

import numpy as np
import pytest

from shardwise.cost.network import network_of
from shardwise.measured.diagnose.expect import bus_factor
from shardwise.measured.diagnose.pairs import path, rounds
from shardwise.show.cli import main
from shardwise.spec.load import cluster_of

H100 = cluster_of("dgx-h100:64")


def nccl_json(hosts, seconds, sizes, op="all_reduce"):
    devices = [
        {"rank": 8 * i, "hostname": host, "device_info": "NVIDIA H100 80GB HBM3"} for i, host in enumerate(hosts)
    ]
    results = [{"size": int(b), "out_of_place": {"time": s * 1e6}} for b, s in zip(sizes, seconds, strict=True)]
    return json.dumps({
        "args": [f"/opt/{op}_perf"], "config": {"nthreads": 1, "ngpus": 8, "devices": devices}, "results": results,
    })  # fmt: skip


def nccl_text(hosts, seconds, sizes):
    ranks = 8 * len(hosts)
    lines = ["# nccl-tests version 2.17.1", "# Collective test starting: all_reduce_perf"]
    lines += [
        f"#  Rank {i:2} Group  0 Pid 1 on {hosts[i // 8]} device  {i % 8} [0000:04:00] NVIDIA H100"
        for i in range(ranks)
    ]
    for size, took in zip(sizes, seconds, strict=True):
        algorithm = size / took / 1e9
        lines.append(
            f"{int(size)} {int(size) // 4} float sum -1 {took * 1e6:.2f} {algorithm:.2f} "
            f"{algorithm * bus_factor('all_reduce', ranks):.2f} 0 1 1 1 0"
        )
    return "\n".join(lines) + "\n"


@pytest.fixture
def measured(tmp_path):
    sizes = 2.0 ** np.arange(20, 35, 2)
    hosts = [f"gpu{i}" for i in range(8)]

    def write(form=nccl_json, **change):
        target = tmp_path / "out.txt"
        seconds = network_of(H100, **change).seconds("all_reduce", sizes, 64)
        target.write_text(form(hosts, seconds.tolist(), sizes), encoding="utf-8")
        return str(target)

    return write


@pytest.mark.parametrize("form", [nccl_json, nccl_text])
def test_sound_then_low(measured, capsys, monkeypatch, form):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["fabric", "expect", measured(form), "--on", "dgx-h100:64"]) == 0
    shown = capsys.readouterr().out
    assert "verdict: as expected, 0 of 8" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert main(["fabric", "expect", measured(form, efficiency={"leaf": 0.4}), "--on", "dgx-h100:64"]) == 1
    shown = capsys.readouterr().out
    assert "verdict: low" in shown
    assert "suspicious: leaf" in shown
    assert "mpirun -np 16 -H gpu0:8,gpu1:8" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_json_has_units_in_its_keys(measured, capsys):
    assert main(["fabric", "expect", measured(efficiency={"leaf": 0.5}), "--on", "dgx-h100:64", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"] == "low"
    assert data["suspects"][0]["level"] == "leaf"
    assert data["sizes"][-1]["measured_bus_bytes_per_s"] < data["sizes"][-1]["low_bus_bytes_per_s"]
    assert [len(each) for each in data["rounds"]] == [4, 4, 4]


def table(tmp_path, nodes, slow, cluster, form):
    rows = []
    for each in rounds(nodes):
        for a, b in each:
            links = path(cluster, nodes.index(a), nodes.index(b))
            rows.append({"a": a, "b": b, "gb_per_s": 380.0 * min([1.0, *(slow.get(link, 1.0) for link in links)])})
    target = tmp_path / f"pairs.{form}"
    with target.open("w", newline="", encoding="utf-8") as file:
        if form == "json":
            json.dump({"pairs": rows}, file)
        else:
            writer = csv.DictWriter(file, ["a", "b", "gb_per_s"])
            writer.writeheader()
            writer.writerows(rows)
    return str(target)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_pairs_name_the_slow_link(tmp_path, capsys, form):
    pod, nodes = cluster_of("dgx-h100:1024"), [f"n{i}" for i in range(128)]
    file = table(tmp_path, nodes, {("node", 37): 0.25}, pod, form)
    assert main(["fabric", "expect", "--on", "dgx-h100:1024", "--pairs", file]) == 1
    assert "host link of n37" in capsys.readouterr().out
    sound = table(tmp_path, nodes, {}, pod, form)
    assert main(["fabric", "expect", "--on", "dgx-h100:1024", "--pairs", sound, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["slow_links"] == []


def test_hosts_in_fabric_order(tmp_path, capsys):
    pod, nodes = cluster_of("dgx-h100:1024"), [f"{'zyxw'[i // 32]}{i % 32}" for i in range(128)]
    file = table(tmp_path, nodes, {("leaf", 0): 0.5}, pod, "csv")
    order = tmp_path / "hosts.txt"
    order.write_text("\n".join(nodes), encoding="utf-8")
    assert main(["fabric", "expect", "--on", "dgx-h100:1024", "--pairs", file, "--hosts", str(order), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["slow_links"][0]["link"] == "uplink of leaf 0 (z0 .. z31)"


def test_nccl_outputs_of_two_hosts_are_pairs(tmp_path, capsys):
    files, nodes = [], [f"gpu{i}" for i in range(8)]
    for each in rounds(nodes):
        for a, b in each:
            took = 0.005 * (4.0 if "gpu5" in (a, b) else 1.0)
            files.append(tmp_path / f"{a}_{b}.json")
            files[-1].write_text(nccl_json([a, b], [took / 900, took], [2**20, 2**30]), encoding="utf-8")
    assert main(["fabric", "expect", "--on", "dgx-h100:64", "--pairs", *map(str, files)]) == 1
    assert "host link of gpu5" in capsys.readouterr().out


def test_without_files_the_plan(capsys):
    assert main(["fabric", "expect", "--on", "dgx-h100:64"]) == 0
    assert "node3-node7" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "words"),
    [("a,b\nx,y\n", "GB/s above 0"), ("a,b,gb_per_s\nx,x,3\n", "two hosts"), ("[]", "no pair"), ("[1]", "entry 1"),
     ("{", "not readable as JSON"), ("", "no pair"), ("a,b,gb_per_s\nx,y,nan\n", "above 0")],
)  # fmt: skip
def test_bad_pairs(tmp_path, capsys, content, words):
    file = tmp_path / "pairs.txt"
    file.write_text(content, encoding="utf-8")
    assert main(["fabric", "expect", "--on", "dgx-h100:64", "--pairs", str(file)]) == 2
    assert words in capsys.readouterr().err


def test_a_wrong_all_gather_of_a_known_text_is_told(tmp_path, capsys):
    file = tmp_path / "gather.json"
    file.write_text(nccl_json(["a"], [65e-6], [33.5e6], op="all_gather"), encoding="utf-8")
    main(["fabric", "expect", str(file), "--on", "8xh100", "--json"])
    assert any("= 65 us" in note for note in json.loads(capsys.readouterr().out)["notes"])


def test_an_unknown_sub_command(capsys):
    assert main(["fabric", "expekt"]) == 2
    assert "did you mean 'fabric'" not in capsys.readouterr().err


def test_bad_input(tmp_path, capsys, measured):
    assert main(["fabric", "expect", str(tmp_path / "none"), "--on", "dgx-h100:64"]) == 2
    assert main(["fabric", "expect", measured(), "--on", "dgx-h100:8"]) == 2
    assert main(["fabric", "expect", measured()]) == 2
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("a\na\n", encoding="utf-8")
    assert main(["fabric", "expect", "--on", "dgx-h100:64", "--hosts", str(hosts)]) == 2
    assert "write each once" in capsys.readouterr().err
