"""Energy, electricity and rent of an amount of training."""

from msgspec.structs import replace

from shardwise.report.report import Money
from shardwise.spec.cluster import Cluster
from shardwise.spec.hardware import electricity
from shardwise.spec.job import NO_FAILURES
from shardwise.spec.load import Price, price_of
from shardwise.units import share_text
from shardwise.work.case import Case

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


def drawn_watts(cluster: Cluster) -> float:
    """Of whole hosts in training."""
    return electricity().host_share * cluster.rated_watts


def money_of(cluster: Cluster, tokens: float, tokens_per_s: float, rent: float | None = None) -> Money:
    """All hosts of the cluster at what they draw in training, and its GPUs at the on-demand rent, for as long as
    `tokens` take; `rent` in dollars per GPU hour takes the place of the published one."""
    seconds = tokens / tokens_per_s
    price = known_price(cluster)
    hours = cluster.gpus * seconds / 3600
    rents = (rent, rent) if rent is not None else None if price is None else price.on_demand
    energy_j = drawn_watts(cluster) * seconds
    return Money(
        tokens=tokens, seconds=seconds, energy_j=energy_j, electricity_usd=electricity().usd(energy_j),
        usd=None if rents is None else (rents[0] * hours, rents[1] * hours),
    )  # fmt: skip


def run_money(case: Case, step_s: float, tokens: float, tokens_per_s: float, rent: float | None = None) -> Money:
    """A whole run's, with failures, saves and restarts; `tokens_per_s` are those that bring it nearer to its end."""
    from shardwise.step.operate.useful import useful_share  # most answers are of no whole run

    share = useful_share(case.model, case.job, case.cluster, step_s)
    found = money_of(case.cluster, tokens, share * tokens_per_s, rent)
    return replace(found, useful_share=share)


def money_table(case: Case, step_s: float) -> dict[str, Money]:
    cluster, job = case.cluster, case.job
    amounts = {"step": float(job.step_tokens), "billion_tokens": BILLION}
    rate = job.step_tokens / step_s
    table = {name: money_of(cluster, tokens, rate) for name, tokens in amounts.items()}
    return table | {"run": run_money(case, step_s, job.tokens, rate)} if job.tokens else table


def failures_line(case: Case, run: Money) -> str:
    failures = case.job.failures
    if failures == NO_FAILURES:
        return "days and dollars: no failures, saves or restarts, as asked"
    return (
        f"days and dollars: failures as {failures}, saves and restarts, which on {case.cluster.gpus:,} GPUs leave "
        f"{share_text(run.useful_share)} of the time for steps that are kept (shardwise operate says more; --failures "
        "off leaves them out)"
    )


def power_line(cluster: Cluster) -> str:
    power, host = electricity(), cluster.host
    size = f"{cluster.node_size} GPUs" if cluster.node_size > 1 else "1 GPU"
    rated = f"{cluster.rated_watts / cluster.gpus * cluster.node_size / 1e3:.3g} kW for {size}"
    whose = "rated" if host is not None and host.rated_watts else "assumed, in proportion to a DGX H100"
    return (
        f"energy: {drawn_watts(cluster) / 1e3:,.3g} kW, {power.host_share:.0%} of what whole nodes are rated at "
        f"({rated}, {whose}); electricity {power.usd_per_kwh:.2f} USD per kWh, "
        f"and {power.pue:g} times that energy for the whole site"
    )


def price_line(cluster: Cluster) -> str:
    price, power = known_price(cluster), power_line(cluster)
    if price is None:
        return f"{power}; no published rent for {cluster.gpu.name}"
    return f"{power}; rent {price.on_demand[0]:.2f}-{price.on_demand[1]:.2f} USD per GPU hour on demand, {price.date}"
