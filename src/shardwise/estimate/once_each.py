"""Work and machine of one policy for each run of policies that agree in some fields: what no other field changes is
priced there, and spread out."""

from dataclasses import dataclass

from shardwise.estimate.layers import Machine
from shardwise.work import Work
from shardwise.work.runs import Runs

SHARDED = ("zero", "shard_group")
"""with a frame: what replicas send each other"""
UPDATED = (*SHARDED, "offload", "offload_share")
"""and where their optimizers run"""


@dataclass(frozen=True)
class OnceEach:
    work: Work
    machine: Machine
    runs: Runs


def of_frames(work: Work, machine: Machine) -> OnceEach:
    return OnceEach(work.of_runs(work.runs), machine.of_runs(work.runs), work.runs)


def of_settings(work: Work, machine: Machine, fields: tuple[str, ...]) -> OnceEach:
    """Of frames that agree in these fields too."""
    runs = work.runs.finer(work.layout.policies, fields)
    return OnceEach(work.of_runs(runs), machine.of_runs(runs), runs)
