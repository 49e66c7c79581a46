"""The two step times people ask for: tuned, as the program's makers reach it, and typical, as others do.

Between the two lie setbacks that a run can be checked for, each priced by itself: no overlap, no CUDA graphs, lower
clocks, TCP on one NIC instead of RDMA.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp

from msgspec.structs import replace as with_fields

from shardwise.spec.cards import with_cards
from shardwise.spec.policy import OVERLAPS, Policies, Policy
from shardwise.spec.software.graphs import with_graphs
from shardwise.step.estimate.band import band_of, tuned_band
from shardwise.step.estimate.causes import CAUSES
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.posterior import prior_of
from shardwise.step.estimate.synced import choice_of
from shardwise.work.case import Case

MATTERS = 0.02
"""share of a step from which on a setback is named"""
LOWER_CLOCK = 0.9
"""of the clock, as under a power or heat limit"""
ONE_NIC = "1x100Gbps"
"""a host's Ethernet, which NCCL takes where it finds no RDMA device"""
OF_OTHERS = ("level", "runs of others")
"""causes, of posterior.CAUSES, that only runs of others have"""


@dataclass(frozen=True)
class Setback:
    """One difference between a tuned run and a typical one."""

    name: str
    change: float
    """of the step, as a share of it"""
    flag: str
    """that prices it; empty where no flag does"""

    def __str__(self) -> str:
        return f"{self.name} {self.change:+.0%}" if self.change < 1 else f"{self.name} x {1 + self.change:.3g}"


@dataclass(frozen=True)
class StepRange:
    tuned_low_s: float
    tuned_high_s: float
    """80 % of runs of those who tuned the program"""
    typical_s: float
    """median of runs of others"""
    typical_low_s: float
    typical_high_s: float
    setbacks: tuple[Setback, ...]


def reached_of(case: Case, policy: Policy, step_s: float) -> StepRange | None:
    """None where no runs of the program's makers were measured, or where the case's own runs say more."""
    band, tuned = band_of(case), tuned_band(case)
    if band is None or tuned is None or case.profile is not None or "site" not in band.missing:
        return None
    mean = dict(zip(CAUSES, prior_of(False).mean, strict=True))
    slower = exp(sum(float(mean[name]) for name in OF_OTHERS))
    found = sorted(_setbacks(case, policy, step_s), key=lambda each: -each.change)
    return StepRange(*tuned.around(step_s), step_s * slower, *band.around(step_s),
                   tuple(each for each in found if each.change > MATTERS))  # fmt: skip


def _setbacks(case: Case, policy: Policy, step_s: float) -> Iterator[Setback]:
    def setback(name: str, flag: str, worse: Case, under: Policy = policy) -> Setback:
        return Setback(name, _step_s(worse, under) / step_s - 1.0, flag)

    hides = [name for name in OVERLAPS if getattr(policy, name)]
    off = " ".join(f"--no-{name.replace('_', '-')}" for name in hides)
    yield setback("no overlap", off, case, with_fields(policy, **dict.fromkeys(hides, False)))
    yield setback("no CUDA graphs", "--graphs none", replace(case, stack=with_graphs(case.stack, "none")))
    kernels = case.stack.kernels
    yield setback("clocks 10% lower", "", case.changed(
        kernel_efficiency=kernels.kernel_efficiency * LOWER_CLOCK,
        attention_efficiency=kernels.attention_efficiency * LOWER_CLOCK,
    ))  # fmt: skip
    if case.cluster.gpus > case.cluster.node_size:
        one_nic = with_cards(case.cluster, ONE_NIC, case.cluster.name)
        yield setback("TCP on one 100 Gb/s NIC", f"--nic {ONE_NIC}", case.on(one_nic))


def _step_s(case: Case, policy: Policy) -> float:
    sync = choice_of(policy.sync, case.job.optimizer.name)
    return float(estimate(case, Policies.of([policy]), sync=sync).times.step_s[0])
