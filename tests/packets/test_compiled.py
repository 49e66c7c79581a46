"""Machine code and Python run the same loop: the same numbers, to the last bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardwise.fabric.packets import COMPILED

HERE = Path(__file__).parent
SCRIPT = """
import json
from msgspec.structs import replace
from small_nets import into_one
from shardwise.fabric.packets import COMPILED, Rules, simulated
network, asked = into_one(7, 90e3)
rules = Rules(headroom_bytes=120e3, mark_low_bytes=60e3, mark_high_bytes=240e3, buffer_bytes=300e3, loss=1e-3)
found = [simulated(network, asked, each, 5) for each in (rules, replace(rules, retransmit="go-back-n"))]
print(json.dumps([COMPILED, [[run.events, run.done_s.tolist(), run.sent_bytes.tolist()] for run in found]]))
"""


def ran(**more):
    path = os.pathsep.join([str(HERE), *sys.path])
    env = os.environ | {"PYTHONPATH": path} | more
    told = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True)
    return json.loads(told.stdout)


@pytest.mark.skipif(not COMPILED, reason="numba is not installed: pip install 'shardwise[packets]'")
def test_compiled_and_interpreted_give_the_same_run():
    compiled, interpreted = ran(), ran(NUMBA_DISABLE_JIT="1")
    assert (compiled[0], interpreted[0]) == (True, False)
    assert compiled[1] == interpreted[1]
