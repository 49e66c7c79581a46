"""The actions of `shardwise sync`."""

from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from math import isfinite
from typing import Any

from shardwise.plugins.compressors import Compressor, compressor, compressors
from shardwise.plugins.sync import Strategy, strategies
from shardwise.plugins.sync._asynchronous import slowest_ticks
from shardwise.plugins.sync._named import strategy_from
from shardwise.plugins.sync._torch import torch_on_one_thread
from shardwise.plugins.topologies import topologies, topology
from shardwise.report.charts import chart_svg
from shardwise.report.course_figure import course_chart
from shardwise.show.cli._html import draw
from shardwise.show.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise.show.cli._sync_cost import DEFAULT_WORKERS
from shardwise.user_cache import keep_compiled_code_private

CHECK_FAILED = 1
SIMULATED_WORKERS = 1024
PLACES = 100
"""of a run at which its error is told"""


def show_list(json: bool) -> int:
    """Strategies, graphs and compressors."""
    kinds = strategies()
    graphs = [topology(name) for name in topologies()]
    codecs = [compressor(name) for name in compressors()]
    if json:
        print_json({
            "strategies": [{"name": k.name, "summary": k.summary, "source": k.source, "optimizer": k.optimizer,
                            "gradient_only": k.gradient_only, "settings": _settings(k())} for k in kinds.values()],
            "topologies": [{"name": g.name, "symmetric": g.symmetric, "static": g.static, "degree_64": g.degree(64),
                            "gap_64": g.gap(64), "period_64": g.period(64)} for g in graphs],
            "compressors": [{"name": c.name, "settings": _settings(c), "delta_1M": c.delta(2**20),
                             "omega_1M": c.omega(2**20), "bytes_per_number": c.wire_bytes(2**20) / 2**20}
                            for c in codecs],
        })  # fmt: skip
        return 0
    print_table("strategies", ["name", "what it does"], [(k.name, k.summary) for k in kinds.values()], words=2)
    print_gap()
    print_table(
        "graphs, at 64 workers", ["name", "symmetric", "messages", "period", "gap"],
        [(g.name, "yes" if g.symmetric else "no", g.degree(64), g.period(64), f"{g.gap(64):.3g}") for g in graphs],
        words=2, bars=("gap",),
    )  # fmt: skip
    print_gap()
    print_table(
        "compressors, 2^20 numbers", ["name", "bytes each", "delta", "omega"],
        [(c.name, f"{c.wire_bytes(2**20) / 2**20:.3g}", c.delta(2**20), c.omega(2**20)) for c in codecs],
        bars=("bytes each",),
    )  # fmt: skip
    print_gap()
    print_notes([
        "settings of a strategy: `shardwise sync list --json`",
        "delta: kept share of the energy at least; omega: error of an unbiased one over the energy at most",
    ])  # fmt: skip
    return 0


def _settings(made: Strategy | Compressor) -> dict[str, str]:
    return {field.name: _shown(getattr(made, field.name)) for field in fields(made)}


def _shown(value: Any) -> str:
    return value.name if hasattr(value, "name") else str(value)


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
    keep_compiled_code_private()
    torch_on_one_thread()
    from shardwise.plugins.sync._problems import LeastSquares, errors

    problem = LeastSquares.of(n, 20, spread=spread, noise=noise, seed=seed)
    cycles = strategy.cycles(n)
    dense_steps = max(int(steps / (1.0 if cycles is None else slowest_ticks(cycles))), 1)
    tail, runs, curves = max(steps // 10, 1), {}, {}
    for label, each, many in ((name, strategy, steps), ("psgd", strategy_from("psgd", []), dense_steps)):
        every = errors(problem, each, steps=many, lr=lr, seed=seed)
        curves[label], found = _curve(every), every[-tail:]
        runs[label] = sum(found) / len(found)
    notes = [
        f"least squares with 20 parameters per worker, {steps:,} steps of plain SGD, mean of the last {tail:,}",
        "error: mean squared distance of the workers to the minimum of all; answered by simulation",
    ]
    if cycles is not None:
        notes.append(
            f"nobody waits: in the time of {steps:,} steps at full speed the workers do "
            f"{strategy.steps_in(steps, n):,.5g} each on average; psgd, which waits for the slowest, {dense_steps:,}"
        )
    finite = isfinite(runs[name])
    if json:
        print_json({"strategy": name, "workers": n, "steps": steps, "lr": lr, "spread": spread, "noise": noise,
                    "seed": seed, "error": runs[name], "psgd_error": runs["psgd"], "diverged": not finite,
                    "worker_steps": strategy.steps_in(steps, n), "psgd_steps": dense_steps,
                    "curve": curves[name], "psgd_curve": curves["psgd"], "notes": notes})  # fmt: skip
    else:
        print_facts(f"{name}: {n:,} workers", [
            ("settings", repr(strategy)),
            ("error", f"{runs[name]:.4g}; psgd {runs['psgd']:.4g}"
                      + (f" ({runs[name] / runs['psgd']:.3g} x)" if finite and runs["psgd"] else "")),
        ])  # fmt: skip
        draw(lambda: _curves_svg(curves))
        print_notes([*notes, *([] if finite else ["it diverged: try a smaller --lr"])])
    return 0 if finite else CHECK_FAILED


def _curves_svg(curves: dict[str, dict[str, list[float]]]) -> str:
    lines = [(who, [(step, error) for step, error in zip(curve["step"], curve["error"], strict=True) if error > 0])
             for who, curve in curves.items()]  # fmt: skip
    return chart_svg(
        course_chart("error on the way", [("mean squared distance to the minimum", lines)], "step", log=True)
    )


def _curve(found: Sequence[float]) -> dict[str, list[float]]:
    """The error on the way, a mean for each of a few places; what is not finite is where it ends."""
    edges = sorted({len(found) * place // PLACES for place in range(PLACES + 1)})
    means = [(high, sum(found[low:high]) / (high - low)) for low, high in pairwise(edges)]
    kept = [(step, error) for step, error in means if isfinite(error)]
    return {"step": [step for step, _ in kept], "error": [error for _, error in kept]}
