"""Work and machine of one policy for each run of policies that agree in some fields: what no other field changes is
priced there, and spread out."""

from dataclasses import dataclass

from shardwise.step.estimate.machine import Machine
from shardwise.work import Work
from shardwise.work.runs import Runs, alone

REPEATED = ("recompute", "recompute_layers", "overlap_tp")
"""with a frame: what a layer takes, except for what ZeRO 3 gathers"""
PACED = (*REPEATED, "offload", "offload_share", "overlap_pp")
"""with a frame: what a micro-batch takes on a stage, where ZeRO neither gathers nor reduces for it"""
SHARDED = ("zero", "shard_group")
"""with a frame: what replicas send each other"""
UPDATED = ("offload", "offload_share")
"""with these: where their optimizers run"""


@dataclass(frozen=True)
class OnceEach:
    work: Work
    machine: Machine
    runs: Runs


def of_frames(work: Work, machine: Machine) -> OnceEach:
    return OnceEach(work.of_runs(work.runs), machine.of_runs(work.runs), work.runs)


def of_policies(work: Work, machine: Machine) -> OnceEach:
    """Of every policy by itself."""
    return OnceEach(work, machine, alone(len(work.layout.policies)))


def finer(known: OnceEach, work: Work, machine: Machine, fields: tuple[str, ...]) -> OnceEach:
    """Of runs that agree in these fields too; `work` and `machine`: of all policies."""
    runs = known.runs.finer(work.layout.policies, fields)
    return known if runs is known.runs else OnceEach(work.of_runs(runs), machine.of_runs(runs), runs)
