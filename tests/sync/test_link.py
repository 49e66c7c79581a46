"""Bytes on a real interface and steps over a slow link: a short form of benchmarks/sync_link.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shardwise_lab.names import abandoned, labs

pytest.importorskip("torch", reason="torch is not installed: nothing can be run")

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.slow
def test_fewer_bytes_are_fewer_seconds_on_a_slow_link():
    words = ["--rate", "50 Mbps", "--width", "256", "--steps", "2", "--json"]
    methods = "dense all-reduce (DDP);double_squeeze,compressor=sign;dsgd"
    command = [sys.executable, str(BENCHMARKS / "sync_link.py"), *words, "--methods", methods]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    if "skipped" in found:
        pytest.skip(found["skipped"])
    dense, sign, gossip = found["methods"]
    assert sign["step_s"] < dense["step_s"]
    assert gossip["wire_bytes"] < 0.8 * dense["wire_bytes"]
    for each in (dense, sign, gossip):
        assert 0.98 < each["wire_over_trace"] < 1.5, each
    assert not [lab for lab in labs() if abandoned(lab)]
