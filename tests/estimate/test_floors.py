"""What a scan takes for the least a frame can cost is the same with and without what it leaves out."""

import numpy as np
import pytest

from shardwise.plan.bounded import plain
from shardwise.plan.space import space
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate, floor_times
from shardwise.step.estimate.time import work_alone
from shardwise.work.case import case_of


@pytest.mark.parametrize(("model", "on", "batch"), [("llama-3-70b", "dgx-h100:1016", 508),
                                                    ("mixtral-8x7b", "dgx-h100:120", 480),
                                                    ("llama-3-8b", "8xh100", 64)])  # fmt: skip
def test_floors_need_no_pace_of_each_stage(model: str, on: str, batch: int) -> None:
    """On 127 and 15 nodes stages begin in the middle of one, so that their replicas lie apart unlike each other."""
    job = Job(seq=8192, global_batch=batch)
    case = case_of(model_of(model), cluster_of(on), job, stack_of("megatron-core"))
    frames = plain(space(case, None, ()).frames)
    whole = work_alone(estimate(case, frames).times)
    np.testing.assert_allclose(work_alone(floor_times(case, frames)), whole, rtol=1e-12)
