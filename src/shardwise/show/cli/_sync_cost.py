"""`shardwise sync cost`: bytes, seconds and memory of a step of one strategy, whole replicas of a model as workers."""

from math import isfinite
from typing import Any

from shardwise.plugins.sync import Cost, FlatNetwork, ParameterLayout, Strategy, SyncEvent
from shardwise.plugins.sync._asynchronous import play, slowest_factor, slowest_ticks, step_seconds
from shardwise.plugins.sync._cost import PricesMessages
from shardwise.plugins.sync._named import strategy_from
from shardwise.question.job import DEFAULT_PRECISION, DEFAULT_STACK
from shardwise.show.cli._flags import DOES_NOT_FIT
from shardwise.show.cli._html import draw_amounts
from shardwise.show.cli._output import print_facts, print_json, print_notes
from shardwise.spec.arch import model_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import MOST_ASSUMED, Job, optimizer_of, precision_of
from shardwise.spec.load import cluster_of
from shardwise.spec.software import stack_of
from shardwise.step.estimate.state import replica_bytes
from shardwise.step.estimate.synced.convergence import extra_of
from shardwise.step.estimate.synced.traffic import layout_of_model
from shardwise.units import count_of, gib, rate_of, seconds_of, time_text
from shardwise.work.case import driven_network

DEFAULT_WORKERS = 64
DEFAULT_LATENCY = "20 us"
MOST_WORKERS = 2048
MOST_JITTER = 10.0


def cost(
    name: str, *, setting: list[str], workers: int | None, model: str | None, parameters: str | None, on: str | None,
    bandwidth: str | None, latency: str | None, compute: str | None, jitter: float, json: bool,
) -> int:  # fmt: skip
    if (model is None) == (parameters is None):
        raise ValueError("sync cost: write either --model NAME or --parameters NUMBER")
    shapes = (
        layout_of_model(model_of(model))
        if model is not None
        else ParameterLayout.flat(count_of(str(parameters), "parameters"))
    )
    network, many, where, cluster = _network(on, bandwidth, latency, workers)
    strategy = strategy_from(name, setting)
    found, dense = (each.cost(shapes, network, many) for each in (strategy, strategy_from("psgd", [])))
    times = _times(strategy, found, dense, compute, jitter)
    memory = _memory(strategy, found, cluster)
    shapeless = strategy.factors_matrices() and model is None
    notes = _notes(strategy, found, dense, shapeless, memory)
    if json:
        print_json(_data(found, dense) | times | memory | {"network": where, "notes": notes})
    else:
        print_facts(
            f"{name}: {shapes.d:,} parameters, {many:,} workers, {where}",
            [("settings", repr(strategy)), *_facts(found, dense, shapeless), *_time_facts(times), _memory_fact(memory)],
        )
        both = {name: found, "psgd": dense}
        draw_amounts("communication of a step", {who: (e.seconds, time_text(e.seconds)) for who, e in both.items()})
        draw_amounts("sent in a step by the busiest worker",
                     {who: (e.sent_bytes, f"{e.sent_bytes / 1e6:,.1f} MB") for who, e in both.items()})  # fmt: skip
        print_notes(notes)
    return DOES_NOT_FIT if memory["fits"] is False else 0


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
        # as `estimate` prices it
        network, where = driven_network(cluster, stack_of(DEFAULT_STACK)), cluster.name
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


def _job(strategy: Strategy) -> Job:
    """AdamW, where the strategy is not the optimizer itself."""
    name = "adamw" if strategy.needs_optimizer() == "any" else strategy.needs_optimizer()
    return Job(
        seq=MOST_ASSUMED, global_batch=1, precision=precision_of(DEFAULT_PRECISION), optimizer=optimizer_of(name)
    )


def _times(strategy: Strategy, found: Cost, dense: Cost, compute: str | None, jitter: float) -> dict[str, Any]:
    """Of a step with so much compute at full speed. Who waits, waits for the slowest; psgd on the same workers."""
    if not (isfinite(jitter) and 0 <= jitter <= MOST_JITTER):
        raise ValueError(f"jitter: {jitter:g} is out of range; write a share such as 0.1, at most {MOST_JITTER:g}")
    keys = ("compute_s", "jitter", "slowest_worker", "step_s", "psgd_step_s", "simulated_step_s", "server_busy")
    if compute is None:
        if jitter:
            raise ValueError("jitter: of what? write --compute TIME too, such as --compute 1s")
        return dict.fromkeys(keys)
    alone, cycles = seconds_of(compute, "compute"), strategy.cycles(found.workers)
    if alone <= 0:
        raise ValueError(f"compute: {compute!r} is out of range; write a time above 0, such as 850 ms")
    slowest = 1.0 if cycles is None else slowest_ticks(cycles)
    waited = dense.seconds + alone * slowest * slowest_factor(found.workers, jitter)
    if cycles is None:
        # those who meet every H steps wait for the slowest sum of H
        spread = jitter * found.busy**0.5
        step = found.seconds + alone * slowest_factor(found.workers, spread)
        return dict(zip(keys, (alone, jitter, slowest, step, waited, None, None), strict=True))
    step = float(step_seconds(cycles, alone, found.message_s))
    run = play(cycles, alone, found.message_s, jitter=jitter)
    return dict(zip(keys, (alone, jitter, slowest, step, waited, run.step_s, run.server_busy), strict=True))


def _time_facts(times: dict[str, Any]) -> list[tuple[str, str]]:
    step, waited, played = (times[key] for key in ("step_s", "psgd_step_s", "simulated_step_s"))
    if step is None:
        return []
    slow = f", the slowest worker {times['slowest_worker']:g} x" if times["slowest_worker"] > 1 else ""
    rows = [("step", f"{time_text(step)} with {time_text(times['compute_s'])} of compute{slow}; psgd, which waits, "
                     f"{time_text(waited)} ({waited / step:.3g} x)")]  # fmt: skip
    if played is not None:
        rows.append(("simulated", f"{time_text(played)} a step; the server's link {times['server_busy']:.0%} busy"))
    return rows


def _memory(strategy: Strategy, found: Cost, cluster: Cluster | None) -> dict[str, Any]:
    replica, gpu = replica_bytes(found.parameters, _job(strategy)), None if cluster is None else cluster.gpu
    return {
        "state_bytes": found.state_bytes, "replica_bytes": replica,
        "capacity_bytes": None if gpu is None else gpu.memory_bytes,
        "fits": None if gpu is None else found.state_bytes + replica <= gpu.memory_bytes,
    }  # fmt: skip


def _memory_fact(memory: dict[str, Any]) -> tuple[str, str]:
    held = f"{gib(memory['state_bytes'])} GiB of state per worker"
    if memory["fits"] is None:
        return "memory", held
    beside, whole = gib(memory["replica_bytes"]), gib(memory["capacity_bytes"])
    end = f"fits in {whole} GiB" if memory["fits"] else f"does not fit in {whole} GiB"
    return "memory", f"{held} beside {beside} GiB of the model and its optimizer: {end}"


def _facts(found: Cost, dense: Cost, shapeless: bool) -> list[tuple[str, str]]:
    saved = dense.seconds / found.seconds if found.seconds and not shapeless else None
    own = f"; a worker waits for two messages of {time_text(found.message_s)}" if found.message_s else ""
    return [
        ("communication", f"{time_text(found.seconds)} a step; psgd {time_text(dense.seconds)}"
                          + (f" ({saved:.3g} x)" if saved else "") + own),
        ("longest step", time_text(found.peak_s)),
        ("sent", f"{found.sent_bytes / 1e6:,.1f} MB a step by the busiest worker; "
                 f"psgd {dense.sent_bytes / 1e6:,.1f} MB"),
        ("exchanges", f"{found.messages:.3g} a step, repeating every {found.steps:,} steps"),
    ]  # fmt: skip


def _notes(strategy: Strategy, found: Cost, dense: Cost, shapeless: bool, memory: dict[str, Any]) -> list[str]:
    optimizer = _job(strategy).optimizer.name
    extra = extra_of(strategy, optimizer)
    notes = [
        "nothing hidden behind compute; time to compress not counted; fp32 on the network; answered by the cost model",
        f"extra steps to the loss of psgd, with {optimizer}: {extra.text} ({extra.source})",
    ]
    if not strategy.waits():
        notes.append(
            "nobody waits: communication is the busier direction of the server's link, which travels under the compute "
            "of others; --compute TIME adds the step it comes to"
        )
    if shapeless:
        notes.append(
            f"{strategy.name} factors matrices, and --parameters has no shapes: all is sent as one dense vector, so "
            "what it saves is not known here; write --model NAME"
        )
    if strategy.waits() and strategy.name != "psgd" and found.seconds > dense.seconds:
        longer = time_text(found.seconds - dense.seconds)
        notes.append(f"slower than the dense all-reduce of psgd, by {longer}: {found.sent_bytes / 1e6:,.4g} MB in "
                     f"{found.messages:.3g} exchanges against {dense.sent_bytes / 1e6:,.4g} MB")  # fmt: skip
    if memory["fits"] is False:
        notes.append(
            "every worker is one GPU with a whole replica here; `shardwise estimate --sync` takes tensor and pipeline "
            "parallelism and shard groups, and counts activations too"
        )
    return notes


def _data(found: Cost, dense: Cost) -> dict[str, Any]:
    return {
        "strategy": found.strategy, "workers": found.workers, "parameters": found.parameters,
        "communication_s": found.seconds, "message_s": found.message_s, "peak_s": found.peak_s,
        "sent_bytes": found.sent_bytes, "total_bytes": found.total_bytes, "exchanges": found.messages,
        "period_steps": found.steps, "psgd_communication_s": dense.seconds, "psgd_sent_bytes": dense.sent_bytes,
        "events": [_event_data(event) for event in dict.fromkeys(found.events)],
    }  # fmt: skip


def _event_data(event: SyncEvent) -> dict[str, Any]:
    return {"op": event.op, "algorithm": event.algorithm, "bytes": event.bytes, "size": event.size,
            "stride": event.stride, "most_sent_bytes": max(event.sent)}  # fmt: skip
