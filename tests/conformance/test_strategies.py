"""Every strategy in the folder: cost, simulation and four real processes agree on every message and every bit.

A new file in shardwise/plugins/sync is enrolled by the registry. The processes run all examples in one go
(`sync/ranks.py`).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be simulated or run")

from one_thread import one_thread  # noqa: E402, F401
from shardwise.plugins.sync import ParameterLayout, simulate, strategies, trace_of  # noqa: E402
from shardwise.plugins.sync._events import broadcast_event  # noqa: E402
from sync import task  # noqa: E402

TESTS = Path(__file__).resolve().parents[1]
NAMES = list(task.EXAMPLES)


def ranks(folder: Path, which: str):
    """What each of four processes ended with, by rank and example."""
    paths = f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}"
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(TESTS / "sync" / "ranks.py"), str(folder), which]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(task.WORKERS)]


def simulated(strategy, n: int, optimizer_fn=None):
    return simulate(
        task.model_fn, optimizer_fn or task.optimizer_for(strategy), strategy, n=n, steps=task.STEPS,
        batch_fn=task.batch_fn, loss_fn=task.loss_fn, batched=False,
    )  # fmt: skip


def check(strategy, n: int, found, key: str, optimizer_fn=None) -> None:
    sim = simulated(strategy, n, optimizer_fn)
    traced = trace_of(strategy, ParameterLayout.of(task.model_fn()), n, task.STEPS)
    costed = [*traced.setup, *(event for step in traced.steps for event in step)]
    assert sim.trace == costed
    for rank in range(n):
        ran = found[rank][key]
        assert torch.equal(ran["x"], sim.x[rank]), f"rank {rank}: {(ran['x'] - sim.x[rank]).abs().max()}"
        assert ran["trace"][0].op == "broadcast"
        assert ran["trace"][1:] == sim.trace
        assert ran["wire"] == sum(event.sent_by(rank) for event in ran["trace"])
    assert torch.isfinite(sim.x).all()


def failures(found, cases) -> dict[str, str]:
    failed = {}
    for name, n, key, optimizer_fn in cases:
        try:
            check(task.EXAMPLES[name], n, found, key, optimizer_fn)
        except AssertionError as problem:
            failed[key] = str(problem)
    return failed


def test_cost_simulation_and_run_agree(tmp_path):
    """One test for all strategies, so that the processes start once however the tests are shared out."""
    found = ranks(tmp_path, "first")
    assert failures(found, [(name, task.WORKERS, name, None) for name in task.FIRST]) == {}


@pytest.mark.slow
def test_every_example_three_workers_other_optimizers_and_torch_s_wrappers(tmp_path):
    found = ranks(tmp_path, "all")
    cases = [(name, task.WORKERS, name, None) for name in NAMES]
    cases += [(name, 3, f"{name}/3", None) for name in task.FIRST if not name.startswith("hierarchical")]
    cases += [(name, task.WORKERS, f"{name}/adamw", task.adamw) for name in task.FAMILIAR]
    assert failures(found, cases) == {}
    for rank in found:
        for name in task.FAMILIAR:  # the library's own all-reduce: near, not equal
            torch.testing.assert_close(rank[f"{name}/library"]["x"], rank[name]["x"], rtol=1e-5, atol=1e-6)
            assert rank[f"{name}/library"]["trace"] == rank[name]["trace"]
        check_adapters(rank)


def check_adapters(found) -> None:
    """Hooks of torch's own wrappers give what wrapping the optimizer gives."""
    for name, x in found["ddp"].items():
        torch.testing.assert_close(x, found[name]["x"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found["fsdp"]["hooked"], found["fsdp"]["native"], rtol=1e-5, atol=1e-6)


def test_the_check_can_fail():
    """A wrong bit, a missing message and a byte too many are each found."""
    strategy = task.EXAMPLES["psgd-0"]
    sim, start = simulated(strategy, 4), broadcast_event(ParameterLayout.of(task.model_fn()).d, 4, 1)
    trace = [start, *sim.trace]
    wire = [sum(event.sent_by(rank) for event in trace) for rank in range(4)]
    good = [{"x": {"x": sim.x[r].clone(), "trace": trace, "wire": wire[r]}} for r in range(4)]
    check(strategy, 4, good, "x")
    for key, wrong in (("x", sim.x[2] * (1 + 1e-7)), ("trace", trace[:-1]), ("wire", wire[2] + 1)):
        bad = [{"x": dict(found["x"])} for found in good]
        bad[2]["x"][key] = wrong
        with pytest.raises(AssertionError):
            check(strategy, 4, bad, "x")


@pytest.mark.parametrize("name", NAMES)
def test_batched_simulation_is_near(name):
    strategy = task.EXAMPLES[name]
    batched = simulate(
        task.model_fn, task.optimizer_for(strategy), strategy, n=4, steps=3, batch_fn=task.batch_fn,
        loss_fn=task.loss_fn,
    )  # fmt: skip
    assert batched.losses.shape == (3, 4)
    assert torch.isfinite(batched.x).all()


@pytest.mark.parametrize("name", list(strategies()))
def test_fields(name):
    kind = strategies()[name]
    assert kind.name == name
    assert kind.summary
    assert len(kind.summary) <= 60
    assert "arXiv" in kind.source or "20" in kind.source
    assert kind.optimizer in ("any", "sgd")
    assert all(isinstance(example, kind) for example in kind.examples())


@pytest.mark.parametrize("name", NAMES)
def test_traffic_repeats_after_its_period(name):
    strategy, layout = task.EXAMPLES[name], ParameterLayout.of(task.model_fn())
    period, start = strategy.period(4), strategy.settles()
    steps = trace_of(strategy, layout, 4, start + 2 * period).steps[start:]
    if not name.startswith("fedavg-1"):  # draws anew each round
        assert steps[:period] == steps[period:]
    assert sum(map(len, steps)) > 0


@pytest.mark.parametrize("name", NAMES)
def test_one_worker_sends_nothing(name):
    strategy = task.EXAMPLES[name]
    try:
        strategy.check(1)
    except ValueError:
        return
    sim = simulated(strategy, 1)
    assert sum(event.sent_by(0) for event in sim.trace) == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_strategy_can_be_printed_and_compared(name):
    assert task.EXAMPLES[name] == task.EXAMPLES[name]
    assert type(task.EXAMPLES[name]).__name__ in repr(task.EXAMPLES[name])
