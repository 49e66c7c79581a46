"""Energy, electricity and rent of an amount of training."""

from shardwise.report.report import Money
from shardwise.spec.cluster import Cluster
from shardwise.spec.hardware import electricity
from shardwise.spec.job import Job
from shardwise.spec.load import Price, price_of

BILLION = 1e9


def known_price(cluster: Cluster) -> Price | None:
    try:
        return price_of(cluster.gpu.name)
    except ValueError:
        return None


def rent_a_day(gpu: str, gpus: int) -> tuple[float, float] | None:
    """Dollars, low and high, that so many GPUs cost on demand; None where no price is published."""
    try:
        low, high = price_of(gpu).on_demand
    except ValueError:
        return None
    return 24 * gpus * low, 24 * gpus * high


def money_of(cluster: Cluster, tokens: float, tokens_per_s: float, rent: float | None = None) -> Money:
    """All GPUs of the cluster, at board power and at the on-demand rent, for as long as `tokens` take; `rent` in
    dollars per GPU hour takes the place of the published one."""
    seconds = tokens / tokens_per_s
    price = known_price(cluster)
    hours = cluster.gpus * seconds / 3600
    rents = (rent, rent) if rent is not None else None if price is None else price.on_demand
    energy_j = cluster.gpus * cluster.gpu.power_watts * seconds
    return Money(
        tokens=tokens, seconds=seconds, energy_j=energy_j, electricity_usd=electricity().usd(energy_j),
        usd=None if rents is None else (rents[0] * hours, rents[1] * hours),
    )  # fmt: skip


def money_table(cluster: Cluster, job: Job, step_s: float) -> dict[str, Money]:
    rate = job.step_tokens / step_s
    amounts = {"step": float(job.step_tokens), "billion_tokens": BILLION}
    if job.tokens:
        amounts["run"] = job.tokens
    return {name: money_of(cluster, tokens, rate) for name, tokens in amounts.items()}


def power_line(cluster: Cluster) -> str:
    power = electricity()
    return (
        f"energy: GPUs at board power ({cluster.gpu.power_watts:.0f} W); electricity {power.usd_per_kwh:.2f} USD per "
        f"kWh, and {power.pue:g} times that energy for the whole site"
    )


def price_line(cluster: Cluster) -> str:
    price, power = known_price(cluster), power_line(cluster)
    if price is None:
        return f"{power}; no published rent for {cluster.gpu.name}"
    return f"{power}; rent {price.on_demand[0]:.2f}-{price.on_demand[1]:.2f} USD per GPU hour on demand, {price.date}"
