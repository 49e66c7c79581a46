"""Small sums of `work`, by hand."""

import numpy as np
import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.model import FeedForward
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import known_stack, stack_names
from shardwise.work import work_of
from shardwise.work.case import training_of
from shardwise.work.context_parallel import SUMMED
from shardwise.work.pieces import _even_cuts
from shardwise.work.unfused_passes import activation_passes

ALONE = next(each for name in stack_names() if (each := known_stack(name)).kernels.one_kernel_per_op)
"""a program with a kernel for each operation"""


@pytest.mark.parametrize(("layers", "pieces"), [(6, [1, 2, 2, 1]), (5, [1, 2, 1, 1]), (8, [2, 2, 2, 2]), (3, [3])])
def test_pieces_of_a_rank_differ_by_a_layer_and_the_middle_has_it(layers: int, pieces: list[int]) -> None:
    cuts = _even_cuts(np.array([[layers]]), len(pieces))[0]
    assert (cuts[0], cuts[-1]) == (0, layers)
    assert np.diff(cuts).tolist() == pieces


@pytest.mark.parametrize("bias", [False, True])
def test_an_activation_reads_and_writes_its_width(bias: bool) -> None:
    """Forward read and written; backward two read and one written, and the bias' gradient read at half the speed."""
    alone = FeedForward(width=64, glu=False, bias=bias)
    assert activation_passes(alone, ALONE) == (2.0, 5.0 if bias else 3.0)


def test_a_ring_adds_up_outputs_and_the_gradients_of_queries_keys_and_values() -> None:
    stack, model = known_stack("megatron-core"), model_of("llama-3-8b")
    policies = Policies.of([Policy(dp=2, cp=n) for n in (2, 4)])
    work = work_of(training_of(model, Job(seq=8192, global_batch=8), stack), policies, every_stage=True)
    (added,) = (each for each in work.kinds[0].unfused if each.name == "blocks summed")
    out, keys_and_values = 32 * 128, 8 * (128 + 128)
    more = {back / ahead * (out + keys_and_values) / out for ahead, back in SUMMED.values()}
    for ratio in added.backward_bytes / added.forward_bytes:
        assert any(ratio == pytest.approx(each) for each in more)
