"""Kernels give the bits of torch: on a GPU where there is one, else through Triton's interpreter."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be compressed")
HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton is not installed: there are no kernels to run or to interpret"
)


@pytest.fixture(scope="module")
def found():
    interpreted = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    paths = os.pathsep.join([str(HERE.parents[1] / "src"), *filter(None, sys.path)])
    environment = {**os.environ, **interpreted, "PYTHONPATH": paths}
    command = [sys.executable, str(HERE / "fused_cases.py")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_messages_rests_and_means_have_the_bits_of_torch(found):
    assert found["cases"] > 500
    assert found["kernels"] == []


def test_strategies_use_them_and_end_with_the_same_bits(found):
    assert found["used"] > 100
    assert found["strategies"] == []


def test_the_check_can_fail(found):
    assert found["sabotage"] != []
