"""One case: the model, the job, the program and the machine. Made once by `case_of`, then passed on whole.

Nothing downstream swaps a model, a stack or a network again, so no two parts of an answer can speak of different ones.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from shardwise.cost.calibrate.overlay import curve_with, network_with, stack_with
from shardwise.cost.calibrate.profile import Profile
from shardwise.cost.curve import Curve
from shardwise.cost.network import Network
from shardwise.spec.arch.tuned import tuned, tuning_notes
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job, check_sequence
from shardwise.spec.model import Model
from shardwise.spec.software import Stack, named, running


@dataclass(frozen=True)
class Training:
    """What is computed, wherever it runs."""

    model: Model
    """as the program trains it"""
    job: Job
    stack: Stack
    """as it is for the model, the job's precision and, in a case, the measured machine"""
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    """what the program trains or runs otherwise than stated"""


@dataclass(frozen=True)
class Case(Training):
    cluster: Cluster
    curve: Curve
    """rates of the GPU's kernels"""
    network: Network = field(repr=False)
    """as this software drives it; remembers the groups it has priced"""
    profile: Profile | None = None
    """what was measured on such a machine, already in stack, curve and network"""

    def changed(self, **settings: Any) -> "Case":
        """The same with some settings of its software replaced."""
        stack = self.stack.changed(**settings)
        return replace(self, stack=stack, network=driven_network(self.cluster, stack, self.profile))

    def measured_by(self, profile: Profile) -> "Case":
        """The same with a profile, where the case has none yet."""
        stack = stack_with(self.stack, profile)
        network = driven_network(self.cluster, stack, profile)
        return replace(self, stack=stack, curve=curve_with(self.cluster.gpu, profile), network=network, profile=profile)

    def on(self, cluster: Cluster) -> "Case":
        """The same on another cluster of its GPUs."""
        return replace(self, cluster=cluster, network=driven_network(cluster, self.stack, self.profile))


def training_of(model: Model, job: Job, stack: Stack) -> Training:
    check_sequence(model, job.seq)
    trained, compute = stack.trained(model), job.precision.compute
    software = named(stack)
    notes = list(model.notes)
    if software.note:
        notes.append(software.note)
    elif software.text:
        notes.append(f"software {software.text!r} is {software.taken}")
    if trained is not model:
        notes.append(f"extra prediction layers: not trained by {stack.name}")
    if stack.in_bf16 and compute == "bf16":
        notes.append(f"in bf16 the stack runs as {stack.in_bf16}")
    if job.tuning is not None:
        notes += tuning_notes(trained, job.tuning, job.precision)
        trained = tuned(trained, job.tuning)
    return Training(trained, job, running(stack, model, compute), notes=tuple(notes))


def case_of(model: Model, cluster: Cluster, job: Job, stack: Stack, profile: Profile | None = None) -> Case:
    """`stack`: as the catalog has it, or with settings changed on request. `profile`: what was measured on such a
    machine, in place of the shipped constants."""
    training = training_of(model, job, stack_with(stack, profile))
    return Case(
        model=training.model,
        job=job,
        stack=training.stack,
        cluster=cluster,
        curve=curve_with(cluster.gpu, profile),
        network=driven_network(cluster, training.stack, profile),
        profile=profile,
        notes=training.notes,
    )


def driven_network(cluster: Cluster, stack: Stack, profile: Profile | None = None) -> Network:
    """The cluster's network as this software drives it: the part of its bandwidth that is reached, and what it adds."""
    efficiency, boundary_s = stack.network.fabric_efficiency, stack.network.boundary_message_s
    if profile is None or profile.network is None:
        return _unmeasured_network(cluster, efficiency, boundary_s)
    found = network_with(cluster, profile.network.by_kind, _reached(cluster, efficiency))
    return replace(found, boundary_message_s=boundary_s)


@lru_cache(maxsize=256)
def _unmeasured_network(cluster: Cluster, efficiency: float, boundary_s: float) -> Network:
    """One for all cases of a cluster: a network remembers the groups it has priced."""
    return replace(network_with(cluster, {}, _reached(cluster, efficiency)), boundary_message_s=boundary_s)


def _reached(cluster: Cluster, efficiency: float) -> dict[str, float]:
    """A program's own factor was fitted on its clusters, and holds what these lose."""
    return {level.name: min(efficiency, cluster.reached) for level in cluster.levels if level.kind == "network"}
