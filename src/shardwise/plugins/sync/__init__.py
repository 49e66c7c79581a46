"""Data parallelism that communicates less: one definition to cost, to simulate and to run.

    strategy = sync.strategy("dsgd", topology=sync.topology("ring"))
    strategy.cost(parameters, network, workers=64)        # no torch needed
    sync.simulate(model_fn, optimizer_fn, strategy, ...)  # n workers in one process
    sync.wrap(model, optimizer, strategy)                 # on any process group of torch

One file in this folder is one strategy; the registry finds it and the conformance suite runs it.
"""

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

from shardwise.plugins.compressors import compressor
from shardwise.plugins.sync._cost import Cost, FlatNetwork, seconds_of, trace_of
from shardwise.plugins.sync._events import SyncEvent
from shardwise.plugins.sync._layout import ParameterLayout
from shardwise.plugins.sync._strategy import Strategy
from shardwise.plugins.topologies import topology
from shardwise.registry import named, plugin_classes

if TYPE_CHECKING:
    from shardwise.plugins.sync._adapters import ddp_hook, fsdp_hook
    from shardwise.plugins.sync._simulate import descend, simulate
    from shardwise.plugins.sync._wrap import wrap

__all__ = [
    "Cost",
    "FlatNetwork",
    "ParameterLayout",
    "Strategy",
    "SyncEvent",
    "compressor",
    "ddp_hook",
    "descend",
    "fsdp_hook",
    "seconds_of",
    "simulate",
    "strategies",
    "strategy",
    "topology",
    "trace_of",
    "wrap",
]  # fmt: skip

_NEED_TORCH = {
    "ddp_hook": "_adapters", "descend": "_simulate", "fsdp_hook": "_adapters", "simulate": "_simulate", "wrap": "_wrap",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_NEED_TORCH[name]}"), name)


@cache
def strategies() -> dict[str, type[Strategy]]:
    """Every known strategy by name."""
    return plugin_classes("shardwise.plugins.sync", "STRATEGY", Strategy)


def strategy(name: str, **settings: Any) -> Strategy:
    """A strategy by name: strategy('local_sgd', every=16)."""
    return named("strategy", name, strategies()).of(settings)
