"""How many bytes of each collective the estimate charges for, read off by a network that needs one second per byte."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from shardwise.cost.hops import Hops
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack
from shardwise.step.estimate import transfers
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of


@dataclass(frozen=True)
class _Line:
    op: str
    counted: str
    size: Any

    def seconds(self, bytes_: Any) -> Any:
        counts = (self.op == self.counted) & (np.asarray(self.size) > 1)
        return np.where(counts, np.asarray(bytes_, dtype=np.float64), 0.0)


@dataclass(frozen=True)
class _Ruler:
    counted: str
    cluster: Cluster
    boundary_message_s: float = 0.0

    def law(self, op: str, size: Any, stride: Any = 1) -> _Line:  # noqa: ARG002
        return _Line(op, self.counted, size)

    def law_of(self, op: str, found: Any) -> _Line:
        return self.law(op, found[0][found[2]])

    def seconds(self, op: str, bytes_: Any, size: Any, stride: Any = 1) -> Any:
        return self.law(op, size, stride).seconds(bytes_)


def _hops(network: _Ruler, bytes_: Any, size: Any, stride: Any = 1) -> Hops:
    each = network.seconds("send", bytes_, size, stride)
    return Hops(slowest=each, nearest=each, mean=each, outside=0.0 * each)


def priced(op: str, model: Model, job: Job, policy: Policy, stack: Stack) -> dict[str, float]:
    """Part of the step -> bytes of this operation in one step; the policy must not overlap communication."""
    cluster = cluster_of(f"dgx-h100:{policy.gpus}")
    case = replace(case_of(model, cluster, job, stack), network=_Ruler(op, cluster))  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfers, "hops_of", _hops)
        found = estimate(case, Policies.of([policy]))
    parts = {name: float(found.times.parts[name][0]) for name in found.times.parts if name.endswith("_comm")}
    return {name: bytes_ for name, bytes_ in parts.items() if bytes_}
