"""The chance to run out of memory rises with the predicted peak and is larger where the program's peaks are unknown."""

import numpy as np

from shardwise.measured.validate.failed import failed_predictions
from shardwise.measured.validate.predict import predict
from shardwise.measured.validate.table import read_table
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.software import stack_for, stack_of
from shardwise.step.estimate.chance import out_of_memory_chance
from shardwise.work.case import case_of
from truth import truth


def case(stack):
    return case_of(model_of("llama-3-8b"), cluster_of("8xh100"), Job(seq=4096, global_batch=64), stack)


def test_it_rises_from_none_to_certain():
    known = case(stack_of("nanotron"))
    room = known.cluster.gpu.memory_bytes - known.stack.memory.reserve_bytes
    found = out_of_memory_chance(known, room * np.array([0.1, 0.5, 0.8, 0.95, 1.0, 1.1, 4.0]))
    assert np.all(np.diff(found) >= 0)
    assert found[0] == 0
    assert found[-1] == 1
    assert 0.3 < found[4] < 0.8
    assert found[5] > 0.7


def test_an_unknown_program_may_need_more():
    known, unknown = case(stack_of("megatron-core")), case(stack_for("Mine 1.0"))
    peaks = 0.85 * (known.cluster.gpu.memory_bytes - known.stack.memory.reserve_bytes) * np.ones(1)
    assert out_of_memory_chance(unknown, peaks)[0] > out_of_memory_chance(known, peaks)[0]


def test_runs_that_gave_no_result_had_the_larger_chance():
    nanotron = case(stack_of("nanotron"))
    failed = failed_predictions(truth("nanotron_failed.csv"))
    rows = read_table(truth("steps.csv"))
    ran = predict([row for row in rows if row.word("source") == "nanotron-ultrascale"])
    chances = [
        out_of_memory_chance(nanotron, np.array([p.peak_bytes for p in part if p.peak_bytes])) for part in (failed, ran)
    ]
    assert chances[0].mean() > 0.85
    assert chances[1].mean() < 0.1
