"""The actions of `shardwise sync`."""

from dataclasses import asdict, fields
from math import isfinite
from pathlib import Path
from typing import Any

from shardwise.arch import model_of
from shardwise.arch.tensors import embedding_tensors, head_tensors, layer_tensors
from shardwise.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise.cli._progress import bar
from shardwise.cli.validate import write_whole
from shardwise.compressors import Compressor, compressor, compressors
from shardwise.cost.network import network_of
from shardwise.estimate.synced.convergence import extra_of
from shardwise.report.sync_figure import figure_of
from shardwise.spec.load import cluster_of
from shardwise.sync import Cost, Event, Flat, Layout, Strategy, strategies
from shardwise.sync._cost import PricesMessages
from shardwise.sync._named import strategy_from
from shardwise.sync._reproduce import Result, reproduction, reproductions
from shardwise.sync._torch import torch_on_one_thread
from shardwise.topologies import topologies, topology
from shardwise.units import count_of, rate_of, seconds_of, time_text

CHECK_FAILED = 1
DEFAULT_WORKERS = 64
DEFAULT_LATENCY = "20 us"
MOST_WORKERS = 2048
SIMULATED_WORKERS = 1024


def show_list(json: bool) -> int:
    """Strategies, graphs, compressors and reproductions."""
    kinds = strategies()
    graphs = [topology(name) for name in topologies()]
    codecs = [compressor(name) for name in compressors()]
    results = reproductions()
    if json:
        print_json({
            "strategies": [{"name": k.name, "summary": k.summary, "source": k.source, "optimizer": k.optimizer,
                            "gradient_only": k.gradient_only, "settings": _settings(k())} for k in kinds.values()],
            "topologies": [{"name": g.name, "symmetric": g.symmetric, "static": g.static, "degree_64": g.degree(64),
                            "gap_64": g.gap(64), "period_64": g.period(64)} for g in graphs],
            "compressors": [{"name": c.name, "settings": _settings(c), "delta_1M": c.delta(2**20),
                             "omega_1M": c.omega(2**20), "bytes_per_number": c.wire_bytes(2**20) / 2**20}
                            for c in codecs],
            "reproductions": [{"name": r.name, "question": r.question, "source": r.source} for r in results.values()],
        })  # fmt: skip
        return 0
    print_table("strategies", ["name", "what it does"], [(k.name, k.summary) for k in kinds.values()], words=2)
    print_gap()
    print_table(
        "graphs, at 64 workers", ["name", "symmetric", "messages", "period", "gap"],
        [(g.name, "yes" if g.symmetric else "no", g.degree(64), g.period(64), f"{g.gap(64):.3g}") for g in graphs],
        words=2,
    )  # fmt: skip
    print_gap()
    print_table(
        "compressors, 2^20 numbers", ["name", "bytes each", "delta", "omega"],
        [(c.name, f"{c.wire_bytes(2**20) / 2**20:.3g}", c.delta(2**20), c.omega(2**20)) for c in codecs],
    )  # fmt: skip
    print_gap()
    print_table("reproductions", ["name", "question"], [(r.name, r.question) for r in results.values()], words=2)
    print_notes([
        "settings of a strategy: `shardwise sync list --json`",
        "delta: kept share of the energy at least; omega: error of an unbiased one over the energy at most",
    ])  # fmt: skip
    return 0


def _settings(made: Strategy | Compressor) -> dict[str, str]:
    return {field.name: _shown(getattr(made, field.name)) for field in fields(made)}


def _shown(value: Any) -> str:
    return value.name if hasattr(value, "name") else str(value)


def cost(
    name: str, *, setting: list[str], workers: int | None, model: str | None, parameters: str | None, on: str | None,
    bandwidth: str | None, latency: str | None, json: bool,
) -> int:  # fmt: skip
    if (model is None) == (parameters is None):
        raise ValueError("sync cost: write either --model NAME or --parameters NUMBER")
    shapes = _shapes(model) if model is not None else Layout.flat(count_of(str(parameters), "parameters"))
    count = shapes.d
    network, many, where = _network(on, bandwidth, latency, workers)
    strategy = strategy_from(name, setting)
    found = strategy.cost(shapes, network, many)
    dense = strategy_from("psgd", []).cost(shapes, network, many)
    notes = _cost_notes(strategy, found, dense)
    if json:
        print_json(_cost_data(found, dense) | {"network": where, "notes": notes})
        return 0
    saved = dense.seconds / found.seconds if found.seconds else None
    print_facts(f"{name}: {count:,} parameters, {many:,} workers, {where}", [
        ("settings", repr(strategy)),
        ("communication", f"{time_text(found.seconds)} a step; psgd {time_text(dense.seconds)}"
                          + (f" ({saved:.3g} x)" if saved else "")),
        ("longest step", time_text(found.peak_s)),
        ("sent", f"{found.sent_bytes / 1e6:,.1f} MB a step by the busiest worker; "
                 f"psgd {dense.sent_bytes / 1e6:,.1f} MB"),
        ("exchanges", f"{found.messages:.3g} a step, repeating every {found.steps:,} steps"),
        ("memory", f"{found.state_bytes / 2**20:,.1f} MiB of state per worker"),
    ])  # fmt: skip
    print_notes(notes)
    return 0


def _network(
    on: str | None, bandwidth: str | None, latency: str | None, workers: int | None
) -> tuple[PricesMessages, int, str]:
    """(the network, how many workers, its name)."""
    if (on is None) == (bandwidth is None):
        raise ValueError("sync cost: write either --on CLUSTER or --bandwidth RATE (with --latency TIME)")
    if on is not None and latency is not None:
        raise ValueError("latency: the cluster states its own; leave it out, or write --bandwidth instead of --on")
    network: PricesMessages
    if on is not None:
        cluster = cluster_of(on)
        network, where = network_of(cluster), cluster.name
        many = cluster.gpus if workers is None else workers
        if many > cluster.gpus:
            raise ValueError(f"workers: {many} on {cluster.gpus} GPUs; write at most {cluster.gpus}")
    else:
        wire = latency or DEFAULT_LATENCY
        network = Flat(seconds_of(wire, "latency"), rate_of(str(bandwidth), "bandwidth"))
        where = f"{bandwidth} each, {wire} a message"
        many = DEFAULT_WORKERS if workers is None else workers
    if not 1 <= many <= MOST_WORKERS:
        raise ValueError(f"workers: {many} is out of range; write 1 to {MOST_WORKERS:,}")
    return network, many, where


def _shapes(name: str) -> Layout:
    """Every tensor of the model; each expert has its own."""
    model = model_of(name)
    tensors = [*embedding_tensors(model), *(t for kind in model.pattern for t in layer_tensors(model, kind)),
               *head_tensors(model)]  # fmt: skip
    shapes = [shape for t in tensors for shape in ([t.shape[1:]] * t.shape[0] if len(t.shape) == 3 else [t.shape])]
    return Layout.named((str(index), shape) for index, shape in enumerate(shapes))


def _cost_notes(strategy: Strategy, found: Cost, dense: Cost) -> list[str]:
    extra = extra_of(strategy, "adamw")
    notes = [
        "nothing hidden behind compute; time to compress not counted; fp32 on the wire; answered by the cost model",
        f"extra steps to the loss of psgd, with AdamW: {extra.text} ({extra.source})",
    ]
    if strategy.name != "psgd" and found.seconds > dense.seconds:
        notes.append("slower than the dense all-reduce of psgd here")
    return notes


def _cost_data(found: Cost, dense: Cost) -> dict[str, Any]:
    return {
        "strategy": found.strategy, "workers": found.workers, "parameters": found.parameters,
        "communication_s": found.seconds, "peak_s": found.peak_s, "sent_bytes": found.sent_bytes,
        "total_bytes": found.total_bytes, "exchanges": found.messages, "period_steps": found.steps,
        "state_bytes": found.state_bytes, "psgd_communication_s": dense.seconds, "psgd_sent_bytes": dense.sent_bytes,
        "events": [_event_data(event) for event in dict.fromkeys(found.events)],
    }  # fmt: skip


def _event_data(event: Event) -> dict[str, Any]:
    return {"op": event.op, "algorithm": event.algorithm, "bytes": event.bytes, "size": event.size,
            "stride": event.stride, "most_sent_bytes": max(event.sent)}  # fmt: skip


def simulate(
    name: str, *, setting: list[str], workers: int | None, steps: int, lr: float, spread: float, noise: float,
    seed: int, json: bool,
) -> int:  # fmt: skip
    n = DEFAULT_WORKERS if workers is None else workers
    for what, value, most in (("workers", n, SIMULATED_WORKERS), ("steps", steps, 1_000_000)):
        if not 1 <= value <= most:
            raise ValueError(f"{what}: {value} is out of range; write a whole number from 1 to {most:,}")
    for what, size in (("lr", lr), ("spread", spread), ("noise", noise)):
        if not (isfinite(size) and size >= 0):
            raise ValueError(f"{what}: {size:g} is out of range; write a number of 0 or more")
    strategy = strategy_from(name, setting)
    strategy.check(n)
    torch_on_one_thread()
    from shardwise.sync._reproduce._problems import LeastSquares, errors

    problem = LeastSquares.of(n, 20, spread=spread, noise=noise, seed=seed)
    tail, runs = max(steps // 10, 1), {}
    for label, each in ((name, strategy), ("psgd", strategy_from("psgd", []))):
        found = errors(problem, each, steps=steps, lr=lr, seed=seed)
        runs[label] = sum(found[-tail:]) / tail
    notes = [
        f"least squares with 20 parameters per worker, {steps:,} steps of plain SGD, mean of the last {tail:,}",
        "error: mean squared distance of the workers to the minimum of all; answered by simulation",
    ]
    finite = isfinite(runs[name])
    if json:
        print_json({"strategy": name, "workers": n, "steps": steps, "lr": lr, "spread": spread, "noise": noise,
                    "seed": seed, "error": runs[name], "psgd_error": runs["psgd"], "diverged": not finite,
                    "notes": notes})  # fmt: skip
    else:
        print_facts(f"{name}: {n:,} workers", [
            ("settings", repr(strategy)),
            ("error", f"{runs[name]:.4g}; psgd {runs['psgd']:.4g}"
                      + (f" ({runs[name] / runs['psgd']:.3g} x)" if finite and runs["psgd"] else "")),
        ])  # fmt: skip
        print_notes([*notes, *([] if finite else ["it diverged: try a smaller --lr"])])
    return 0 if finite else CHECK_FAILED


def reproduce(name: str, figure: Path | None, quick: bool, json: bool) -> int:
    names = list(reproductions()) if name == "all" else [reproduction(name).name]
    if figure is not None and (figure.suffix != ".svg" or len(names) > 1):
        raise ValueError(f"figure: {figure.name!r} with {name}; write one result and a name that ends in .svg")
    if names not in (["talk_times"], ["language_model"]):
        torch_on_one_thread()
    found: dict[str, Result] = {}
    for each in names:
        with bar(each) as told:
            found[each] = reproduction(each).run(quick, told or _unseen)
    if figure is not None:
        write_whole(figure, figure_of(found[names[0]]).encode(), "figure")
    if json:
        whole = [_result_data(each, result) for each, result in found.items()]
        print_json(whole[0] if name != "all" else {"reproductions": whole, "holds": all(r["holds"] for r in whole)})
    else:
        for result_name, result in found.items():
            _show(result_name, result)
        if figure is not None:
            print(f"figure: {figure} (open in a browser)")
    return 0 if all(result.holds for result in found.values()) else CHECK_FAILED


def _unseen(done: int, of: int) -> None:
    """Nobody watches."""


def _show(name: str, result: Result) -> None:
    print_table(result.title, result.heads, result.rows)
    print_notes([("holds: " if c.holds else "FAILS: ") + c.claim for c in result.checks], title="checks")
    print_notes([*result.notes, f"source: {reproduction(name).source}"])
    print_gap()


def _result_data(name: str, result: Result) -> dict[str, Any]:
    return {
        "name": name, "question": reproduction(name).question, "source": reproduction(name).source,
        "holds": result.holds, "title": result.title, "heads": result.heads, "rows": result.rows,
        "checks": [asdict(check) for check in result.checks], "notes": result.notes,
    }  # fmt: skip
