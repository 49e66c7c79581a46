"""What ZeRO-3 holds of gathered weights: two layers, or tensor by tensor what is in use and used again soon."""

import numpy as np
import pytest

from shardwise.spec.arch import model_from_shape
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.gathered import gathered_bytes
from shardwise.work import work_of
from shardwise.work.case import case_of

HIDDEN, VOCAB, POSITIONS, REUSED = 20480, 51200, 2048, 1e9
TABLE = HIDDEN * (VOCAB + POSITIONS)
LAYER, LARGEST = 12 * HIDDEN**2, 4 * HIDDEN**2


def _held(stack: str) -> float:
    """Besides logits and a layer's own tensors, of which there are none here; 16 bits everywhere."""
    model = model_from_shape("wide", 105, HIDDEN, 128, 128, 4 * HIDDEN, False, VOCAB, tied=True)
    job = Job(seq=2048, global_batch=2560, precision=PRECISIONS["fp16"])
    case = case_of(model, cluster_of("dgx-a100:640"), job, stack_of(stack))
    work = work_of(case, Policies.of([Policy(dp=640, zero=3, micro_batch=4)]), every_stage=True)
    nothing = np.zeros_like(work.stages.index)
    return float(gathered_bytes(work, sum(work.parameters), nothing, nothing).max())


def test_a_layer_at_a_time() -> None:
    """At the loss the table, its gradient and a layer; later the running layer, the next one and a whole gradient."""
    assert _held("torch-fsdp") == pytest.approx(max(4 * TABLE + 2 * LAYER, (2 + 1) * 2 * LAYER), rel=0.01)


def test_tensor_by_tensor() -> None:
    """The head's gradient and what stays gathered beside it outweigh the largest tensor and its gradient."""
    kept = LARGEST + REUSED
    assert _held("deepspeed") == pytest.approx(max(4 * TABLE + 2 * kept, 2 * kept + 2 * LARGEST), rel=0.01)
