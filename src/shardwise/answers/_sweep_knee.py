"""Where more of something stops helping: within 5 % of what can be reached."""

from collections.abc import Callable

from msgspec import Struct

from shardwise.answers._sweep_axes import SweepAxis

Points = list[tuple[float, float, float]]
StepAt = Callable[[float], float | None]
NEAR = 0.05
ENDLESS = 1e18
"""bytes/s: a network that costs latency alone"""
BISECTIONS = 10


class Knee(Struct, frozen=True, kw_only=True):
    value: float | None
    """None where the axis ends before it"""
    limit: float
    """seconds a step tends to (network), its least (micro), or tokens/s per GPU of the first point (gpus)"""
    why: str


def knee_of(
    axis: SweepAxis, points: list[tuple[float, float, float]], step_at: Callable[[float], float | None]
) -> Knee | None:
    """`points` are (value, step_s, tokens/s per GPU) of what runs; `step_at` estimates one more."""
    if not points:
        return None
    if axis.name == "network":
        return _network(axis, points, step_at)
    if axis.name == "gpus":
        first, kept = points[0][2], points[0][0]
        for value, _, rate in points:
            if rate < (1 - NEAR) * first:
                break
            kept = value
        why = f"up to {axis.text(kept)} GPUs keep 95 % of the first's throughput per GPU"
        return Knee(value=kept, limit=first, why=why)
    if axis.name == "micro":
        limit = min(step for _, step, _ in points)
        value = next(v for v, step, _ in points if step <= (1 + NEAR) * limit)
        return Knee(value=value, limit=limit, why=f"from {axis.text(value)} on the step is within 5 % of its least")
    return None


def _network(axis: SweepAxis, points: Points, step_at: StepAt) -> Knee:
    limit = step_at(ENDLESS) or min(step for _, step, _ in points)
    inside = next((v for v, step, _ in points if step <= (1 + NEAR) * limit), None)
    if inside is None:
        return Knee(value=None, limit=limit, why=f"not reached: the step tends to {limit:.4g} s on an endless network")
    below = [v for v, _, _ in points if v < inside]
    low, high = (below[-1] if below else inside), inside
    for _ in range(BISECTIONS if below else 0):
        middle = (low * high) ** 0.5
        step = step_at(middle)
        low, high = (low, middle) if step is not None and step <= (1 + NEAR) * limit else (middle, high)
    words = f"from {axis.text(high)}" if below else f"already at {axis.text(high)}"
    return Knee(value=high, limit=limit, why=f"{words} the step is within 5 % of {limit:.4g} s, its limit")
