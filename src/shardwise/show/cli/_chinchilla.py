"""What `shardwise size --chinchilla` says: parameters and tokens for a compute budget, and how long they take."""

import re

import msgspec

from shardwise.answers._budget import Budget
from shardwise.question.studies.money import known_price
from shardwise.show.cli._output import print_json, print_notes, print_table
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import precision_of
from shardwise.spec.sizes import Sizes
from shardwise.step.estimate.chinchilla import optima
from shardwise.step.estimate.mfu import training_flops, training_seconds
from shardwise.units import flops_of, time_text


def chinchilla_answer(
    sizes: Sizes, flops: str | None, limit: Budget, rent: float | None, mfu: float, precision: str, *, json: bool
) -> int:
    cluster = sizes.named or sizes.at(sizes.step)
    peak = cluster.gpu.peak(precision_of(precision).compute)
    work, notes = _work(cluster, flops, limit, rent, peak * mfu, named=sizes.named is not None)
    rows = []
    for found in optima(work):
        seconds = {
            name: training_seconds(
                training_flops(found.tokens, found.parameters, recompute=again), cluster.gpus, peak, mfu
            )
            for name, again in (("seconds_6tp", False), ("seconds_8tp", True))
        }
        rows.append((found, seconds))
    notes += [
        f"times on {cluster.gpus:,} x {cluster.gpu.name} at {mfu:.0%} of {peak / 1e12:,.4g} TFLOP/s; "
        "6TP without recompute, 8TP with the forward pass repeated",
        "L(N, D) = 1.69 + 406.4 / N^0.34 + 410.7 / D^0.28 (arXiv:2203.15556); its loss is of that paper's data",
    ]
    if json:
        print_json({
            "flops": work, "gpu": cluster.gpu.name, "gpus": cluster.gpus, "mfu": mfu, "peak_flops_per_s": peak,
            "optima": [msgspec.to_builtins(found) | times for found, times in rows], "notes": notes,
        })  # fmt: skip
        return 0
    print_table(
        f"compute-optimal training for {work:.3g} FLOP",
        ["law", "parameters", "tokens", "loss", "6TP", "8TP"],
        ([f.law, _big(f.parameters), _big(f.tokens), f"{f.loss:.3f}", time_text(t["seconds_6tp"]),
          time_text(t["seconds_8tp"])] for f, t in rows),
        bars=("6TP", "8TP"),
    )  # fmt: skip
    print_notes(notes)
    return 0


def _big(value: float) -> str:
    scale, unit = next(((s, u) for s, u in ((1e12, "T"), (1e9, "B"), (1e6, "M")) if value >= s), (1.0, ""))
    return f"{value / scale:.3g}{unit}"


def _work(
    cluster: Cluster, flops: str | None, limit: Budget, rent: float | None, rate: float, *, named: bool
) -> tuple[float, list[str]]:
    """FLOP as given, or what dollars (or a deadline on a sized cluster) buy at the assumed utilization."""
    given = [what for what in (flops, limit.usd, limit.seconds) if what is not None]
    if len(given) != 1:
        raise ValueError(
            "chinchilla: write one budget: --flops 1e24, --budget '1M USD', or --within '30 d' --on dgx-h100:1024"
        )
    if flops is not None:
        work = _flops(flops)
        if not 0 < work < 1e35:
            raise ValueError(f"flops: {flops!r} is out of range; write an amount of work such as 1e24")
        return work, []
    if limit.seconds is not None:
        if not named:
            raise ValueError("chinchilla: --within needs a number of GPUs; write --on dgx-h100:1024")
        return rate * cluster.gpus * limit.seconds, []
    price = known_price(cluster)
    if rent is None and price is None:
        raise ValueError(f"rent: none is published for {cluster.gpu.name}; write --rent with USD per GPU hour")
    dollars = rent if rent is not None else price.on_demand[1] if price is not None else 0.0
    assert limit.usd is not None
    hours = limit.usd / dollars
    return rate * hours * 3600, [f"{limit.usd:,.0f} USD at {dollars:g} USD per GPU hour = {hours:,.0f} GPU hours"]


def _flops(text: str) -> float:
    if re.search(r"FLOPs?\s*$", text):
        return flops_of(text, "flops")
    return flops_of(f"{text} FLOP", "flops")
