"""What was measured, judged: collectives against the cost model, the slow link, storage, products, tools."""

import sys
from types import SimpleNamespace

import pytest
from made_node import CARDS, NAME, Made
from test_items import PLAN, planned
from test_nodes import HOSTS

from shardwise.cost.network import network_of
from shardwise.run.preflight.check import checked, chosen
from shardwise.run.preflight.measurements import (
    CounterWindow,
    DeviceProduct,
    FolderRates,
    MeasuredCollective,
    MeasuredPair,
    Measurements,
    Trial,
    TrialSteps,
    TrialTrace,
)
from shardwise.run.preflight.node import run_here
from shardwise.run.preflight.orders import orders_for
from shardwise.run.preflight.readers.cards import counters_of
from shardwise.run.preflight.storage import storage_rates
from shardwise.run.preflight.tools import DIAGNOSTIC, all_reduce_test, write_test

FULL = 2**28


def told(item: str, *nodes, plan=PLAN):
    (row,) = checked(nodes, plan, chosen([item]))
    return row


def node(host: str = "node1", **measured):
    made = Made(host=host, measured=Measurements(seconds=1.0, **measured))
    return made.recorded()


def reduced(factor: float, device: str = "cuda") -> list[MeasuredCollective]:
    """An all-reduce of both nodes, so many times as long as the cost model expects."""
    seconds = factor * float(network_of(PLAN.cluster).seconds("all_reduce", FULL, 16))
    return [MeasuredCollective(axis="dp", op="all_reduce", bytes=FULL, ranks=16, nodes=2, seconds=seconds,
                               median_s=seconds, groups=1, hosts=["node1", "node2"], device=device)]  # fmt: skip


def test_collectives_are_held_against_the_cost_model():
    assert told("collectives", node(collectives=reduced(1.0))).verdict == "pass"
    slow = told("collectives", node(collectives=reduced(4.0)))
    assert slow.verdict == "fail"
    assert "dp all_reduce of 256 MiB at 25%" in slow.evidence
    assert "suspicious" in slow.cure
    assert told("collectives", node(collectives=reduced(4.0, "cpu"))).verdict == "not available"
    assert told("collectives", node(collectives=reduced(4.0)), plan=None).verdict == "not available"
    assert told("collectives", node()).verdict == "not available"


def test_the_slow_link_is_named():
    rates = {
        frozenset(pair): 40e9
        for pair in (("node1", "node2"), ("node3", "node4"), ("node1", "node3"), ("node2", "node4"))
    }
    rates |= {pair: 8e9 for pair in rates if "node4" in pair}
    pairs = [MeasuredPair(a=min(pair), b=max(pair), bytes_per_s=rate) for pair, rate in rates.items()]
    nodes = [node(host, pairs=pairs if host == "node1" else []) for host in HOSTS]
    row = told("slow-link", *nodes, plan=planned("dgx-h100:32"))
    assert row.verdict == "fail"
    assert row.evidence.startswith("host link of node4: 20% of 40 GB/s")
    assert told("slow-link", *nodes, plan=None).evidence.startswith("node4: 2 slow pairs")
    even = [MeasuredPair(a=pair.a, b=pair.b, bytes_per_s=40e9) for pair in pairs]
    nodes[0].measured.pairs = even
    assert told("slow-link", *nodes, plan=planned("dgx-h100:32")).verdict == "pass"


def product(device: str = "cuda:0", **other) -> DeviceProduct:
    usual = {"name": NAME, "torch": "2.13", "equal": True, "digest": "a", "flops_per_s": 7e14}
    return DeviceProduct(device=device, **{**usual, **other})


def test_products_that_differ_are_told():
    eight = [product(f"cuda:{i}") for i in range(8)]
    assert told("products", node(products=eight), node("node2", products=eight)).verdict == "pass"
    wrong = told("products", node(products=[*eight[:7], product("cuda:7", equal=False)]))
    assert (wrong.verdict, "node1 cuda:7" in wrong.evidence) == ("fail", True)
    odd = told("products", node(products=eight), node("node2", products=[*eight[:7], product("cuda:7", digest="b")]))
    assert (odd.verdict, "node2 cuda:7" in odd.evidence) == ("fail", True)
    slow = told("products", node(products=[*eight[:7], product("cuda:7", flops_per_s=5e14)]))
    assert (slow.verdict, "node1 cuda:7" in slow.evidence) == ("warn", True)


def test_counters_that_grow_while_measuring_fail():
    before = counters_of(Made().recorded())
    grown = before | {"mlx5_3/rx_discards_phy": before["mlx5_3/rx_discards_phy"] + 5}
    assert told("drops", node(counters=CounterWindow(before=before, after=before, seconds=10.0))).verdict == "pass"
    row = told("drops", node(counters=CounterWindow(before=before, after=grown, seconds=10.0)))
    assert (row.verdict, "mlx5_3/rx_discards_phy 5" in row.evidence) == ("fail", True)
    paused = before | {"mlx5_3/rx_prio3_pause_duration": 2_000_000}
    row = told("pauses", node(counters=CounterWindow(before=before, after=paused, seconds=10.0)))
    assert (row.verdict, "20.0% of the time" in row.evidence) == ("fail", True), "microseconds over seconds"
    unheard = before | {"mlx5_3/np_ecn_marked_roce_packets": 9}
    assert told("marks", node(counters=CounterWindow(before=before, after=unheard, seconds=10.0))).verdict == "fail"


def test_network_that_nccl_took():
    line = (
        "node1:1:1 [0] NCCL INFO NET/IB : Using "
        + " ".join(f"[{i}]mlx5_{i}:1/RoCE" for i in range(CARDS))
        + " [RO]; OOB eth0"
    )
    way = "node1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA"
    assert told("nccl-network", node(nccl_log=f"{line}\n{way}")).evidence == "IB, 8 devices, GPUDirect"
    assert told("nccl-network", node(nccl_log=f"{line}\n{way.removesuffix('/GDRDMA')}")).verdict == "warn"
    assert told("nccl-network", node(nccl_log=line.replace(" [7]mlx5_7:1/RoCE", ""))).verdict == "warn"
    socket = "node1:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"
    assert told("nccl-network", node(nccl_log=socket)).verdict == "fail"
    assert told("nccl-network", node()).verdict == "not available"


REDUCED = """# nccl-tests all_reduce_perf
{ranks}
   268435456  67108864  float  sum  -1  1050.0  255.65  447.4  0  1050.0  255.65  447.4  0
"""
WRITTEN = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1000             0.00               {rate:.2f}        0.748
"""
DIAGNOSED = '{"DCGM GPU Diagnostic": {"test_categories": [{"tests": [{"results": [{"status": "PASS"}]}]}]}}'


def test_tools_of_others():
    made = Made(measured=Measurements(seconds=1.0))
    tools = ("nccl-tests", "ib-write", "dcgm-diag")
    assert {told(item, made.recorded()).verdict for item in tools} == {"not available"}
    ranks = "\n".join(f"#  Rank  {i} Group  0 Pid 1 on node1 device  {i} [0x1b] NVIDIA H100" for i in range(8))
    made.commands |= {
        DIAGNOSTIC: (0, DIAGNOSED), "ib_write_bw --version": (0, "Version: 6.20"),
        all_reduce_test(8): (0, REDUCED.format(ranks=ranks)),
        **{write_test(f"mlx5_{i}"): (0, WRITTEN.format(rate=192.1 if i == 5 else 392.1)) for i in range(CARDS)},
    }  # fmt: skip
    assert told("dcgm-diag", made.recorded()).verdict == "pass"
    slow = told("ib-write", made.recorded())
    assert (slow.verdict, slow.evidence) == ("fail", "mlx5_5 192 of 400 Gb/s")
    assert told("nccl-tests", made.recorded()).verdict == "pass"
    made.commands[DIAGNOSTIC] = (0, DIAGNOSED.replace("PASS", "FAIL"))
    assert told("dcgm-diag", made.recorded()).verdict == "fail"


def test_storage_is_measured_and_nothing_is_left(tmp_path):
    found = storage_rates(tmp_path, 1.0, most=2**24)
    assert found.bytes == 2**24
    assert min(found.write_bytes_per_s, found.read_bytes_per_s) > 0
    assert list(tmp_path.iterdir()) == []
    assert told("storage", node(storage=found)).verdict == "pass"
    assert "lands in" in told("plan-checkpoint", node(storage=found)).evidence
    away = storage_rates(tmp_path / "away", 1.0)
    assert told("storage", node(storage=away)).verdict == "fail"
    assert told("storage", node()).verdict == "not available"
    assert FolderRates(folder="a").write_bytes_per_s is None


def test_orders_are_the_plans_own_collectives():
    found = orders_for(PLAN, 16, "cuda")
    assert {(order.axis, order.op) for order in found} >= {("tp", "all_gather"), ("dp", "reduce_scatter")}
    data = next(order for order in found if order.axis == "dp")
    assert (0, 8) in data.groups
    assert max(order.bytes for order in found) <= FULL
    assert [order.axis for order in orders_for(PLAN, 4, "cpu")] == ["all"] * 3


def test_a_trial_is_held_against_the_plan():
    plan = planned("8xh100", tp=1, dp=8, zero=3, sp=False)
    report = plan.training.report
    items = ("run-step", "run-variance", "run-overlap", "run-stragglers")
    steps = TrialSteps(records=50, exact=True, median_s=report.step_s, variation=0.005, tail=1.02)
    trace = TrialTrace(
        step_s=report.step_s, parts_s={}, exposed_s=0.01, hidden_s=0.5, slow_rank="", ranks=8, slowest=0.98
    )
    sound = node(trial=Trial(steps=steps, trace=trace))
    assert [told(item, sound, plan=plan).verdict for item in items] == ["pass"] * 4
    late = TrialSteps(records=50, exact=True, median_s=2 * report.step_s, variation=0.2, tail=1.5)
    slow = TrialTrace(
        step_s=report.step_s, parts_s={}, exposed_s=0.9, hidden_s=0.0, slow_rank="rank 3", ranks=8, slowest=0.6
    )
    bad = node(trial=Trial(steps=late, trace=slow))
    assert [told(item, bad, plan=plan).verdict for item in items] == ["warn", "warn", "warn", "fail"]


def test_a_pipeline_that_waits_longer_than_predicted():
    plan = planned("8xh100", tp=1, dp=2, pp=4, sp=False, schedule="1f1b")
    step = plan.training.report.step_s
    for share, verdict in ((0.01, "pass"), (0.5, "warn")):
        trace = TrialTrace(
            step_s=step,
            parts_s={"bubble": share * step},
            exposed_s=0.0,
            hidden_s=0.0,
            slow_rank="",
            ranks=1,
            slowest=None,
        )
        traced = node(trial=Trial(trace=trace))
        assert told("run-bubble", traced, plan=plan).verdict == verdict
        assert told("gpu-utilization", traced, plan=plan).verdict == verdict
        assert told("run-stragglers", traced, plan=plan).verdict == "not available"


def test_nvml_answers_where_nvidia_smi_is_not(monkeypatch):
    def refuses(*_):
        raise OSError("not supported")

    fake = SimpleNamespace(
        nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetName=lambda _: b"NVIDIA H100", nvmlDeviceGetIndex=lambda i: i,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=80 * 2**30, used=2**20), nvmlDeviceGetMigMode=refuses,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setenv("PATH", "")
    printed = run_here(
        "nvidia-smi --query-gpu=index,name,memory.total,mig.mode.current --format=csv,noheader,nounits", 5.0
    )
    assert printed is not None
    assert printed.text.splitlines() == ["0, NVIDIA H100, 81920, [N/A]", "1, NVIDIA H100, 81920, [N/A]"]
    assert run_here("nvidia-smi topo -m", 5.0) is None


@pytest.mark.parametrize(
    ("command", "code"), [("sleep 30", 124), ("yes", 124), ("false", 1), ("sh -c 'sleep 30 & sleep 30'", 124)]
)
def test_commands_end_in_time(command, code):
    printed = run_here(command, 0.5)
    assert printed is not None
    assert printed.code == code
    assert len(printed.text) <= 4 * 2**20
