"""`shardwise sync`: data parallelism that communicates less - listed, costed, simulated."""

from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.registry import closest
from shardwise.show.cli import _sync
from shardwise.show.cli._options import Json
from shardwise.show.cli._sync_cost import cost

ACTIONS = ("list", "cost", "simulate")
Settings = Annotated[
    list[str] | None, Parameter(name="--set", negative=(), help="A setting as name=value; may repeat: --set every=16.")
]


def sync(
    action: Annotated[str, Parameter(help="list, cost or simulate.")],
    name: Annotated[str | None, Parameter(help="A strategy.")] = None,
    /,
    *,
    setting: Settings = None,
    model: Annotated[str | None, Parameter(help="cost: whose parameters, by name or config.json.")] = None,
    parameters: Annotated[str | None, Parameter(help="cost: their number instead, such as 25.5M.")] = None,
    workers: Annotated[int | None, Parameter(help="How many; default 64, or the cluster's GPUs.")] = None,
    on: Annotated[str | None, Parameter(help="cost: a cluster whose network carries it.")] = None,
    bandwidth: Annotated[str | None, Parameter(help="cost: of each worker, such as 25 Gbps.")] = None,
    latency: Annotated[str | None, Parameter(help="cost: of a message; default 20 us.")] = None,
    compute: Annotated[str | None, Parameter(help="cost: of a worker's step, such as 850 ms.")] = None,
    jitter: Annotated[float, Parameter(help="cost: how much compute varies, as a share of it.")] = 0.0,
    steps: Annotated[int, Parameter(help="simulate: how many.")] = 1000,
    lr: Annotated[float, Parameter(help="simulate: learning rate.")] = 0.05,
    spread: Annotated[float, Parameter(help="simulate: how unequal the workers' data are.")] = 1.0,
    noise: Annotated[float, Parameter(help="simulate: of the gradients.")] = 1.0,
    seed: Annotated[int, Parameter(help="simulate: of everything random.")] = 0,
    json: Json = False,
) -> int:
    """Strategies of data parallelism: what there is, bytes and seconds of a step, n workers in one process."""
    if action == "reproduce":
        raise ValueError("sync: reproduce is part of the evidence; write python -m evidence.papers NAME in a checkout")
    if action not in ACTIONS:
        raise ValueError(f"sync: {action!r} is not an action; {closest(action, list(ACTIONS))}")
    if action == "list":
        return _sync.show_list(json)
    if name is None:
        raise ValueError(f"sync {action}: of what? `shardwise sync list` has the names")
    settings: dict[str, Any] = {"setting": setting or [], "workers": workers}
    if action == "cost":
        return cost(name, model=model, parameters=parameters, on=on, bandwidth=bandwidth, latency=latency,
                    compute=compute, jitter=jitter, json=json, **settings)  # fmt: skip
    return _sync.simulate(name, steps=steps, lr=lr, spread=spread, noise=noise, seed=seed, json=json, **settings)
