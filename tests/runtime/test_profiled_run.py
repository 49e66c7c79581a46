"""Real traces: torch.profiler around steps of the runtime on two gloo ranks, of which one is made slow."""

import pytest

torch = pytest.importorskip("torch")
from torch.profiler import ProfilerActivity, profile, record_function  # noqa: E402
from training import LLAMA, RATE, batch_for, task_of  # noqa: E402

from shardwise.measured.diagnose.measured_step import measured_step  # noqa: E402
from shardwise.programs.importers.run_files import read_run  # noqa: E402
from shardwise.run.runtime.train.engine import TrainingEngine  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.optimizer import OptimizerSettings  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

POLICY = Policy(dp=2, zero=1)
STEPS = 3
SLOW = 1


def profiled(folder, rank: int) -> None:
    torch.set_num_threads(1)
    engine = TrainingEngine(task_of(LLAMA, POLICY), torch.device("cpu"), OptimizerSettings())
    weight = torch.randn(400, 400)

    def step(number: int) -> None:
        engine.accumulate(batch_for(engine, number))
        if rank == SLOW:
            for _ in range(60):
                weight @ weight
        engine.update(RATE)

    step(0)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for number in range(STEPS):
            with record_function(f"ProfilerStep#{number}"):
                step(number + 1)
    profiler.export_chrome_trace(str(folder / f"rank{rank}.json"))


def test_the_slow_rank_of_a_real_run(tmp_path):
    forked(2, lambda rank: profiled(tmp_path, rank))
    traces = read_run([tmp_path]).traces
    assert [trace.rank for trace in traces] == [0, 1]
    found = measured_step(traces, POLICY)
    assert found.steps == STEPS
    assert all(trace.on_cpu for trace in traces)
    for rank in found.ranks:
        assert sum(rank.parts.values()) == pytest.approx(rank.step_s, rel=1e-6)
    first = max((cause for cause in found.causes if cause.code != "compute"), key=lambda cause: cause.seconds)
    assert (first.code, found.slow_rank) == ("straggler", f"rank {SLOW}")
