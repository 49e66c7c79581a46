"""Starts the ranks of a lab run and waits for them; none of them outlives this process or its time limit."""

import subprocess
import tempfile
from collections.abc import Sequence

import msgspec

from shardwise.interpreter import python_command, python_environment
from shardwise.run.runtime.parent import die_with_parent
from shardwise_lab.build import Built
from shardwise_lab.cables import host_address
from shardwise_lab.order import Answer, LabOrder, LabWorld

PORT = 29_400
UNNAMED = {"RES_OPTIONS": "timeout:1 attempts:1"}
"""nobody answers for names in a lab: torch asks for them only to print them"""
LONGEST_SAID = 400


def answers_of(built: Built, worlds: Sequence[LabWorld], limit_s: float, *, realtime: bool = False) -> list[Answer]:
    order = LabOrder(
        spaces=tuple(built.hosts), addresses=tuple(host_address(gpu) for gpu in range(built.fabric.gpus)),
        interface=built.fabric.interface, port=PORT, worlds=tuple(worlds), realtime=realtime,
    )  # fmt: skip
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            python_command("shardwise_lab.ranks"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
            preexec_fn=die_with_parent, env=python_environment(**UNNAMED),
        )  # fmt: skip
        try:
            out, _ = process.communicate(msgspec.json.encode(order), timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise ValueError(
                f"limit: the ranks were not done after {limit_s:g} s; write a longer --limit or smaller sizes"
            ) from None
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            said.seek(0)
            lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
            why = lines[-1][:LONGEST_SAID] if lines else f"code {process.returncode}"
            raise RuntimeError(f"lab: a rank failed: {why}")
    return [msgspec.json.decode(line, type=Answer) for line in out.splitlines()]
