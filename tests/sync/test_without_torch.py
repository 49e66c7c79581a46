"""Every strategy is costed without torch, and the check can fail."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COSTS = """
from shardwise.plugins import sync
for kind in sync.strategies().values():
    for example in kind.examples():
        example.cost(1000, sync.FlatNetwork(1e-6, 1e9), 8)
assert "torch" not in sys.modules or sys.modules["torch"] is None
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


def test_costs_need_no_torch():
    found = python("import sys; sys.modules['torch'] = None" + COSTS)
    assert found.returncode == 0, found.stderr


def test_the_check_can_fail():
    found = python("import sys; sys.modules['torch'] = None" + COSTS + "sync.simulate")
    assert found.returncode == 1
    assert "torch" in found.stderr


def test_the_command_line_without_torch():
    run = "import sys; sys.modules['torch'] = None\nfrom shardwise.show.cli import main\nsys.exit(main({!r}))"
    for words in (["sync", "list"], ["sync", "cost", "mem_sgd", "--parameters", "1M", "--bandwidth", "1 Gbps"]):
        found = python(run.format(words))
        assert found.returncode == 0, found.stderr
    found = python(run.format(["sync", "simulate", "psgd"]))
    assert found.returncode == 2
    assert "needs torch; install shardwise[run]" in found.stderr
