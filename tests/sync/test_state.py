"""Saving and going on: the same bits as a run that never stopped, or a refusal that says why."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be simulated")

from shardwise.plugins.sync import ParameterLayout, strategies  # noqa: E402
from shardwise.plugins.sync._stack import StackComm  # noqa: E402
from shardwise.plugins.sync._state import load_state, saved_state  # noqa: E402
from sync import task  # noqa: E402

LAYOUT = ParameterLayout.named([("a", (3, 4)), ("b", (5,))])
GRADIENTS = torch.randn(12, 4, LAYOUT.d, generator=torch.Generator().manual_seed(0))


def go(strategy, comm, state, x, steps):
    for t in steps:
        comm.step = t
        direction = strategy.on_grad(comm, state, x, GRADIENTS[t] + 0.1 * x, 0.1, t)
        x = strategy.on_param(comm, state, x, x - 0.1 * direction, 0.1, t)
    return x


@pytest.mark.parametrize("name", list(task.EXAMPLES))
def test_going_on_has_the_same_bits(name, tmp_path):
    strategy = task.EXAMPLES[name]
    comm, start = StackComm.of(LAYOUT, 4), torch.zeros(4, LAYOUT.d)
    state = strategy.init(comm, start)
    whole = go(strategy, comm, state, start, range(12))

    first = StackComm.of(LAYOUT, 4)
    state = strategy.init(first, start)
    middle = go(strategy, first, state, start, range(7))
    torch.save(saved_state(strategy, first, state, 7), tmp_path / "state.pt")
    saved = torch.load(tmp_path / "state.pt", weights_only=True)  # plain data: nothing is executed

    second = StackComm.of(LAYOUT, 4)
    fresh = strategy.init(second, torch.zeros(4, LAYOUT.d))
    state, step = load_state(strategy, second, fresh, saved, reset=False)
    assert step == 7
    assert torch.equal(go(strategy, second, state, middle, range(7, 12)), whole)


def saved_of(strategy, n: int, layout=LAYOUT):
    comm = StackComm.of(layout, n)
    return saved_state(strategy, comm, strategy.init(comm, torch.ones(n, layout.d)), 3)


def load(strategy, saved, n: int, layout=LAYOUT, **options):
    comm = StackComm.of(layout, n)
    return load_state(
        strategy, comm, strategy.init(comm, torch.zeros(n, layout.d)), saved, **{"reset": False, **options}
    )


def test_state_that_is_the_same_everywhere_moves_to_another_number_of_workers():
    strategy = strategies()["diloco"]()
    one, other = StackComm.of(LAYOUT, 1), StackComm.of(LAYOUT, 1)
    saved = saved_state(strategy, one, strategy.init(one, torch.ones(1, LAYOUT.d)), 3)
    saved["workers"] = 8  # saved by one rank of eight
    state, step = load_state(strategy, other, strategy.init(other, torch.zeros(1, LAYOUT.d)), saved, reset=False)
    assert step == 3
    assert torch.equal(state["anchor"], torch.ones(1, LAYOUT.d))


def test_state_of_each_worker_is_refused_or_started_anew():
    strategy = strategies()["mem_sgd"]()
    saved = saved_of(strategy, 4)
    with pytest.raises(ValueError, match="error of mem_sgd belongs to each of 4 workers, now 3; write reset=True"):
        load(strategy, saved, 3)
    state, _ = load(strategy, saved, 3, reset=True)
    assert torch.equal(state["error"], torch.zeros(3, LAYOUT.d))


def test_what_does_not_belong_together_is_refused():
    saved = saved_of(strategies()["mem_sgd"](), 4)
    with pytest.raises(ValueError, match="it is of mem_sgd, not of psgd"):
        load(strategies()["psgd"](), saved, 4)
    with pytest.raises(ValueError, match="parameter 'b' was"):
        load(strategies()["mem_sgd"](), saved, 4, ParameterLayout.named([("a", (3, 4)), ("b", (6,))]))
    with pytest.raises(ValueError, match="version 9 is unknown"):
        load(strategies()["mem_sgd"](), {**saved, "version": 9}, 4)
    with pytest.raises(ValueError, match="error missing"):
        load(strategies()["mem_sgd"](), {**saved, "state": {}}, 4)


def test_state_is_named_by_parameter():
    saved = saved_of(strategies()["mem_sgd"](), 2)
    assert saved["state"]["error"]["a"].shape == (2, 3, 4)
    assert saved["shapes"] == {"a": [3, 4], "b": [5]}
