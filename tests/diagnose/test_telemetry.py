"""Readings of GPUs, cards, switches and collectives against their limits; each limit names where it comes from."""

import re
from pathlib import Path

import pytest

from shardwise.measured.diagnose.counters import counter_causes
from shardwise.measured.diagnose.telemetry import telemetry_causes, telemetry_limits
from shardwise.programs.importers.counters import parse_counters, read_counters

EXAMPLES = Path(__file__).parents[2] / "examples" / "telemetry"


def judged(text: str) -> dict[str, str]:
    return {cause.code: cause.where for cause in telemetry_causes(parse_counters(text, "eth2"))}


@pytest.mark.parametrize(("file", "found"), [
    ("smi.csv", {"idle_gpu": "index 2"}),
    ("switch.csv", {"slow_port": "switch leaf1 port swp1", "marked": "switch leaf1 port swp3",
                    "paused": "switch leaf1 port swp3", "queued": "switch leaf1 port swp3"}),
    ("nccl-inspector.jsonl", {"slow_collective": "node1 rank 2 of 8, 1,073,741,824 B"}),
])  # fmt: skip
def test_what_the_examples_show(file, found):
    series = read_counters(EXAMPLES / file)
    causes = telemetry_causes(series)
    assert {cause.code: cause.where for cause in causes} == found
    assert all("limit from" in cause.evidence for cause in causes)
    assert counter_causes(series) == [], "each is told once"


def test_every_limit_names_its_origin():
    assert all(limit.value > 0 and len(limit.source) > 20 for limit in telemetry_limits().values())


def test_sound_readings_say_nothing():
    smi = (EXAMPLES / "smi.csv").read_text().replace(" 35 %", " 96 %")
    assert judged(smi) == {}
    inspected = re.sub(
        r'"coll_exec_time_us":9800', '"coll_exec_time_us":4300', (EXAMPLES / "nccl-inspector.jsonl").read_text()
    )
    assert judged(inspected) == {}
    rows = (EXAMPLES / "switch.csv").read_text().splitlines()
    assert judged("\n".join([rows[0], *(row for row in rows if "swp0" in row or "swp2" in row)])) == {}


def test_all_gpus_idle_are_one_cause():
    rows = "".join(
        f"2026-11-16 10:00:{at:02},{gpu},{97 if at < 30 else 10}\n" for at in range(0, 60, 5) for gpu in range(8)
    )
    assert judged("time,gpu,utilization.gpu\n" + rows) == {"idle_gpu": "all 8"}


def test_a_port_that_counts_pause_time_is_not_judged_by_frames():
    head = "2026-11-16 10:00:{:02}\nNIC statistics:\n"
    text = "".join(head.format(at) + f"  rx_prio3_pause: {at * 500}\n  rx_prio3_pause_duration: 10\n" for at in (0, 10))
    assert judged(text) == {}
    assert judged(text.replace("  rx_prio3_pause_duration: 10\n", "")) == {"paused": "eth2"}


def test_cells_and_shares_are_not_taken_for_bytes():
    rows = "".join(f"2026-11-16 10:00:{at:02},swp1,900000\n" for at in range(0, 60, 10))
    assert judged("time,port,queue_depth_cells\n" + rows) == {}
    assert judged("time,port,queue_depth_bytes\n" + rows) == {"queued": "port swp1"}


def test_nccl_inspector_as_its_readme_prints_it():
    text = """{
  "header": { "id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 1 },
  "metadata": { "dump_timestamp_us": 1748030377748202, "hostname": "example-hostname", "pid": 1639453 },
  "coll_perf": { "coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": 17179869184,
    "coll_exec_time_us": 61974, "coll_algobw_gbs": 277.210914, "coll_busbw_gbs": 485.119099 }
}
{"coll_perf": "damaged"}
"""
    (series,) = parse_counters(text)
    assert (series.name, series.values) == ("all_reduce_us", [61974])
    assert series.place == "example-hostname rank 2 of 8, 17,179,869,184 B"
