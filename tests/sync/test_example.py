"""The example of two lines runs as a user would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: nothing can be run")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_two_lines():
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "examples/sync_two_lines.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("loss 0.")
    assert "sent" in found.stdout
