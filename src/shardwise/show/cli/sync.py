"""`shardwise sync`: data parallelism that communicates less - listed, costed, simulated."""

from dataclasses import replace
from math import isfinite
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers._strategy_list import strategies_answer
from shardwise.answers.sync import (
    SyncQuestion,
    cluster_network,
    sync_cost_answer,
    sync_simulate_answer,
)
from shardwise.plugins.sync import FlatNetwork, ParameterLayout
from shardwise.plugins.sync._cost import PricesMessages
from shardwise.plugins.sync._named import strategy_from
from shardwise.plugins.sync._torch import torch_on_one_thread
from shardwise.registry import closest
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered
from shardwise.spec.arch import model_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.load import cluster_of
from shardwise.step.estimate.synced.traffic import layout_of_model
from shardwise.units import count_of, rate_of, seconds_of
from shardwise.user_cache import keep_compiled_code_private

ACTIONS = ("list", "cost", "simulate")
DEFAULT_WORKERS = 64
DEFAULT_LATENCY = "20 us"
MOST_WORKERS = 16_384
SIMULATED_WORKERS = 1024
MOST_JITTER = 10.0
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
        return answered(strategies_answer(), json)
    if name is None:
        raise ValueError(f"sync {action}: of what? `shardwise sync list` has the names")
    if action == "cost":
        ask = _cost_question(name, setting or [], workers, model, parameters, on, bandwidth, latency)
        return answered(sync_cost_answer(_with_compute(ask, compute, jitter)), json)
    many = DEFAULT_WORKERS if workers is None else workers
    for what, value, most in (("workers", many, SIMULATED_WORKERS), ("steps", steps, 1_000_000)):
        if not 1 <= value <= most:
            raise ValueError(f"{what}: {value} is out of range; write a whole number from 1 to {most:,}")
    for what, size in (("lr", lr), ("spread", spread), ("noise", noise)):
        if not (isfinite(size) and size >= 0):
            raise ValueError(f"{what}: {size:g} is out of range; write a number of 0 or more")
    strategy = strategy_from(name, setting or [])
    strategy.check(many)
    keep_compiled_code_private()
    torch_on_one_thread()
    return answered(sync_simulate_answer(strategy, many, steps, lr=lr, spread=spread, noise=noise, seed=seed), json)


def _cost_question(
    name: str, setting: list[str], workers: int | None, model: str | None, parameters: str | None, on: str | None,
    bandwidth: str | None, latency: str | None,
) -> SyncQuestion:  # fmt: skip
    if (model is None) == (parameters is None):
        raise ValueError("sync cost: write either --model NAME or --parameters NUMBER")
    shapes = (
        layout_of_model(model_of(model))
        if model is not None
        else ParameterLayout.flat(count_of(str(parameters), "parameters"))
    )
    network, many, where, cluster = _network(on, bandwidth, latency, workers)
    return SyncQuestion(strategy_from(name, setting), shapes, network, where, many, cluster, model is not None)


def _with_compute(ask: SyncQuestion, compute: str | None, jitter: float) -> SyncQuestion:
    if not (isfinite(jitter) and 0 <= jitter <= MOST_JITTER):
        raise ValueError(f"jitter: {jitter:g} is out of range; write a share such as 0.1, at most {MOST_JITTER:g}")
    if compute is None:
        if jitter:
            raise ValueError("jitter: of what? write --compute TIME too, such as --compute 1s")
        return ask
    seconds = seconds_of(compute, "compute")
    if seconds <= 0:
        raise ValueError(f"compute: {compute!r} is out of range; write a time above 0, such as 850 ms")
    return replace(ask, compute_s=seconds, jitter=jitter)


def _network(
    on: str | None, bandwidth: str | None, latency: str | None, workers: int | None
) -> tuple[PricesMessages, int, str, Cluster | None]:
    """(the network, how many workers, its name, whose)."""
    if (on is None) == (bandwidth is None):
        raise ValueError("sync cost: write either --on CLUSTER or --bandwidth RATE (with --latency TIME)")
    if on is not None and latency is not None:
        raise ValueError("latency: the cluster states its own; leave it out, or write --bandwidth instead of --on")
    network: PricesMessages
    cluster = None if on is None else cluster_of(on)
    if cluster is not None:
        network, where = cluster_network(cluster), cluster.name
        many = cluster.gpus if workers is None else workers
        if many > cluster.gpus:
            raise ValueError(f"workers: {many} on {cluster.gpus} GPUs; write at most {cluster.gpus}")
    else:
        wire = latency or DEFAULT_LATENCY
        network = FlatNetwork(seconds_of(wire, "latency"), rate_of(str(bandwidth), "bandwidth"))
        where = f"{bandwidth} each, {wire} a message"
        many = DEFAULT_WORKERS if workers is None else workers
    if not 1 <= many <= MOST_WORKERS:
        raise ValueError(f"workers: {many} is out of range; write 1 to {MOST_WORKERS:,}")
    return network, many, where, cluster
