"""Trainings of the runtime on a lab: what they are, and that the planner's messages are theirs."""

import numpy as np
import pytest

from shardwise.plugins.sync import strategies
from shardwise.step.estimate.synced.traffic import layout_of_model
from shardwise_lab.emulated import emulated_of
from shardwise_lab.job_sends import CONTROL, payload, step_calls
from shardwise_lab.job_told import _covered, _seen, checked_job, job_says
from shardwise_lab.jobs import job_of
from shardwise_lab.knobs import Knobs
from shardwise_lab.order import JobMessage, JobStep, LabWorld
from shardwise_lab.torchrun import spread_out

GPUS = 4
ORDER = tuple(range(GPUS))


def sent(text: str, step: int = 0) -> np.ndarray:
    """Bytes from rank to rank without what steers the loop."""
    calls = [call for call in step_calls(job_of(text, GPUS), step + 1)[step] if call.axis != CONTROL]
    return payload(calls, GPUS)


def parameters(text: str) -> int:
    return layout_of_model(job_of(text, GPUS).model).d


def test_degrees_make_the_gpus():
    assert job_of("tp", 4).policy.tp == 4
    both = job_of("tp=2,pp", 8).policy
    assert (both.tp, both.pp, both.dp) == (2, 4, 1)
    assert job_of("tp=2", 8).policy.dp == 4
    assert job_of("ep", 4).policy.ep == job_of("ep", 4).policy.dp == 4
    assert job_of("sync=local_sgd,every=2", 4).policy.sync == "local_sgd,every=2"


@pytest.mark.parametrize(("text", "words"), [
    ("tp=3", "does not make 4"), ("tq=2", "tp"), ("tp=x", "not a degree"), ("tp=0", "not a degree"),
    ("", "names nothing"), ("zero", "not a degree"),
    ("tp,pp", "does not make"), ("sync=nothing", "unknown"), ("tp=2,dp=4", "does not make"), ("zero=9", "zero"),
])  # fmt: skip
def test_what_cannot_be_trained_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        job_of(text, GPUS)


def test_data_parallel_steps_sum_every_gradient():
    """2 (n - 1) / n of the parameters in fp32 from every rank; twice as much with a reduce-scatter that is a sum."""
    each = 2 * 3 / 4 * 4 * parameters("dp")
    assert sent("dp").sum(axis=1) == pytest.approx(np.full(4, each), rel=1e-3)
    assert sent("zero=1").sum(axis=1) == pytest.approx(np.full(4, 1.5 * each), rel=1e-3)
    assert sent("zero=3").sum(axis=1) == pytest.approx(np.full(4, 2 * each), rel=1e-2)


def test_a_pipeline_hands_on_and_back():
    """Eight micro-batches of 128 x 128 numbers each way between neighbours, nothing else."""
    size = 8 * 128 * 128 * 4
    table = sent("pp")
    assert table[0, 1] == table[1, 0] == table[1, 2] == size
    assert table[0, 2] == table[0, 3] == 0


def test_context_parallel_blocks_go_round_and_back():
    table = sent("cp") - sent("dp")
    assert table[0, 1] > 0
    # the gradient's block beside it: twice the bytes
    assert table[1, 0] == pytest.approx(2 * table[0, 1], rel=0.01)


def test_strategies_send_what_their_events_say():
    gossip = sent("sync=dsgd,topology=ring")
    assert gossip[0, 1] == gossip[0, 3] == 4 * parameters("dp")
    assert gossip[0, 2] == 0
    assert sent("sync=local_sgd,every=3", 1).sum() == 0 < sent("sync=local_sgd,every=3", 2).sum()


@pytest.mark.parametrize("name", sorted(strategies()))
def test_every_strategy_is_a_job(name):
    gpus = 8 if name == "hierarchical" else GPUS
    assert len(step_calls(job_of(f"sync={name}", gpus), 4)) == 4


def test_a_strategy_that_stays_silent_is_refused():
    job = job_of("sync=local_sgd,every=50", GPUS)
    with pytest.raises(ValueError, match="times"):
        checked_job(LabWorld(order=ORDER, job=job, steps=3))
    checked_job(LabWorld(order=ORDER, job=job, steps=60))


def test_time_of_a_step_is_its_messages_one_after_another():
    """One sum over four cards: as the collective alone."""
    fabric = emulated_of("star4", Knobs(card_bytes_per_s=5e6))
    says = job_says(fabric, LabWorld(order=ORDER, job=job_of("dp", GPUS), steps=2), 0.0)
    wire = 1.5 * 4 * parameters("dp") * 1.0456 / 5e6
    assert wire < says.seconds < 1.05 * wire
    assert says.calls["dp"] == 1


def step(rank: int, *messages: JobMessage) -> JobStep:
    return JobStep(world=0, turn=0, rank=rank, start_s=0.0, end_s=9.0, loss=1.0, messages=messages)


def test_messages_are_timed_from_when_the_last_rank_has_come():
    late = [
        step(0, JobMessage("tp", "all_gather (0, 1)", 1.0, 4.0)),
        step(1, JobMessage("tp", "all_gather (0, 1)", 3.0, 4.5)),
    ]
    assert _seen(late) == {"tp": 1.5}
    # sent at once into a buffer, received later; two under way together count once
    sends = [step(0, JobMessage("pp", "0>1", 1.0, 1.0), JobMessage("pp", "0>1", 1.5, 1.5)),
             step(1, JobMessage("pp", "0>1", 0.5, 2.0), JobMessage("pp", "0>1", 2.0, 3.0))]  # fmt: skip
    assert _seen(sends) == {"pp": 2.0}
    assert _covered([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0), (5.2, 5.5)]) == 4.0


@pytest.mark.parametrize(("command", "left", "taken"), [
    ("torchrun train.py --nproc 3", "torchrun train.py --nproc 3", ""),
    ("torchrun --nproc-per-node 4 train.py --lr 1", "torchrun train.py --lr 1", "--nproc-per-node 4"),
    ("torchrun --standalone --nproc_per_node=4 --max-restarts 2 -m pkg.train", "torchrun --max-restarts 2 -m pkg.train",
     "--standalone, --nproc-per-node 4"),
    ("python -m torch.distributed.run --nnodes=2 --nproc-per-node 2 --rdzv-backend c10d t.py",
     "python -m torch.distributed.run t.py", "--nnodes 2, --nproc-per-node 2, --rdzv-backend c10d"),
    ("python train.py --nproc-per-node 9", "python train.py --nproc-per-node 9", ""),
])  # fmt: skip
def test_torchruns_own_numbers_are_the_labs(command, left, taken):
    found, told = spread_out(command.split(), 4)
    assert (" ".join(found), told) == (left, taken)


def test_another_number_of_ranks_is_refused():
    with pytest.raises(ValueError, match="4 GPUs"):
        spread_out(["torchrun", "--nproc-per-node", "8", "t.py"], 4)
