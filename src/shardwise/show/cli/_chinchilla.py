"""The FLOP that `shardwise size --chinchilla` may spend, from FLOP, dollars or a deadline."""

import re

from shardwise.answers._budget import Budget
from shardwise.question.studies.money import known_price
from shardwise.spec.cluster import Cluster
from shardwise.units import flops_of


def work_of(
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
