"""State of a strategy as something to save: by parameter name where it has one entry per parameter.

Only tensors, numbers, strings, lists and dicts, so that it can be stored without pickling code.
"""

from typing import Any

from torch import Tensor

from shardwise.plugins.sync._comm import Communicator, Ready
from shardwise.plugins.sync._strategy import State, Strategy

VERSION = 1


def _value(entry: Any) -> Tensor:
    value: Tensor = entry if isinstance(entry, Tensor) else entry.wait()
    return value


def saved_state(strategy: Strategy, comm: Communicator, state: State, step: int) -> dict[str, Any]:
    layout = comm.layout
    tensors: dict[str, Any] = {}
    for key, entry in state.items():
        row = _value(entry).detach().clone()
        if row.shape[1:] == (layout.d,):
            named = zip(layout.names, layout.shapes, layout.bounds, strict=True)
            tensors[key] = {name: row[:, a:b].reshape(-1, *shape) for name, shape, (a, b) in named}
        else:
            tensors[key] = row
    return {
        "strategy": strategy.name, "settings": repr(strategy), "version": VERSION, "workers": comm.n, "step": step,
        "shapes": dict(zip(layout.names, map(list, layout.shapes), strict=True)), "state": tensors,
    }  # fmt: skip


def load_state(
    strategy: Strategy, comm: Communicator, fresh: State, saved: dict[str, Any], *, reset: bool
) -> tuple[State, int]:
    """(state, step). Per-worker state of another number of workers is refused unless it may start anew."""
    _check(strategy, comm, fresh, saved)
    layout, state = comm.layout, dict(fresh)
    for key, entry in fresh.items():
        kept = saved["state"][key]
        if comm.n != saved["workers"] and key not in strategy.replicated:
            if not reset:
                raise ValueError(
                    f"state: {key} of {strategy.name} belongs to each of {saved['workers']} workers, now {comm.n}; "
                    "write reset=True to reset it"
                )
            continue
        row = _joined(kept, layout.names) if isinstance(kept, dict) else kept
        row = row.to(_value(entry).device)
        if row.shape != _value(entry).shape:
            raise ValueError(f"state: {key} has shape {tuple(row.shape)}, this run needs {tuple(_value(entry).shape)}")
        state[key] = row if isinstance(entry, Tensor) else Ready(row)
    return state, int(saved["step"])


def _joined(kept: dict[str, Tensor], names: tuple[str, ...]) -> Tensor:
    import torch

    return torch.cat([kept[name].reshape(kept[name].shape[0], -1) for name in names], dim=1)


def _check(strategy: Strategy, comm: Communicator, fresh: State, saved: dict[str, Any]) -> None:
    if saved.get("version") != VERSION:
        raise ValueError(f"state: version {saved.get('version')!r} is unknown; this shardwise reads {VERSION}")
    if saved["strategy"] != strategy.name:
        raise ValueError(f"state: it is of {saved['strategy']}, not of {strategy.name}; wrap with the same one")
    shapes = dict(zip(comm.layout.names, map(list, comm.layout.shapes), strict=True))
    for name in [*shapes, *saved["shapes"]]:
        if shapes.get(name) != saved["shapes"].get(name):
            raise ValueError(
                f"state: parameter {name!r} was {saved['shapes'].get(name)}, is {shapes.get(name)}; "
                "load it into the same model"
            )
    missing = [key for key in fresh if key not in saved["state"]]
    if missing:
        raise ValueError(f"state: {', '.join(missing)} missing; it was saved with other settings: {saved['settings']}")
