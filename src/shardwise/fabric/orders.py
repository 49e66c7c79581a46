"""Ways to lay ranks on GPUs, priced: the order of the axes, how ranks are dealt out, how rings are ordered."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations

from shardwise.cost.network import Network
from shardwise.fabric.calls import PlacedMessage
from shardwise.fabric.links import RoutedFabric
from shardwise.fabric.place import seats_of
from shardwise.fabric.price import Paces, Prices, Quotes
from shardwise.fabric.step import StepLoad, step_load
from shardwise.refusal import is_refusal
from shardwise.spec.policy import GRID, Policy

DEALT = (("packed", "rank"), ("shifted", "rank"), ("alternating", "rank"), ("alternating", "sorted"),
         ("random", "rank"), ("random", "sorted"), ("scattered", "rank"))  # fmt: skip


@dataclass(frozen=True)
class Order:
    axes: tuple[str, ...]
    deal: str
    ring: str
    load: StepLoad

    @property
    def seconds(self) -> float:
        """All collectives of a step, one after another."""
        return sum(self.load.communication_s().values())

    @property
    def far_bytes(self) -> float:
        """Bytes that leave their leaf group or rail: what decides between orders that are as fast."""
        return sum(each["between rails"] + each["between leaf groups"] for each in self.load.crossings.values())

    @property
    def rank(self) -> tuple[float, float]:
        return float(f"{self.seconds:.3g}"), self.far_bytes


def orders_of(
    policy: Policy,
    fabric: RoutedFabric,
    network: Network,
    calls: Sequence[PlacedMessage],
    named: Mapping[str, str] | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> list[Order]:
    """What is planned first: of the orders with ranks packed the one whose collectives take least. Then the others, the
    fastest first: all are priced before overlap, so one that slows what cannot hide may look good and be bad."""
    quotes: Quotes = {}
    paces: Paces = {}

    def priced(axes: tuple[str, ...], deal: str, ring: str) -> Order:
        split = " > ".join(axis for axis in axes if getattr(policy, axis) > 1)
        told(f"pricing the step with ranks {deal}, {split or 'dp'}")
        seats = seats_of(policy, fabric, order=axes, deal=deal, ring=ring)
        return Order(axes, deal, ring, step_load(Prices(fabric, network, seats, quotes, named or {}, paces), calls))

    found, refused = [], None
    for axes in axis_orders(policy):
        try:
            found.append(priced(axes, "packed", "rank"))
        except ValueError as error:  # no way is left, or no switch adds where this order puts the ranks
            if not is_refusal(error):
                raise
            refused = error
    if refused is not None and not found:
        raise refused
    best = min(found, key=lambda order: order.rank)
    found.remove(best)
    nodes, units = (len(set(column[: policy.gpus].tolist())) for column in (fabric.node, fabric.unit))
    for deal, ring in DEALT[1:]:
        if nodes > 1 and (units > 1 or deal != "alternating"):
            with suppress(ValueError):
                found.append(priced(best.axes, deal, ring))
    return [best, *sorted(found, key=lambda order: order.rank)]


def axis_orders(policy: Policy) -> list[tuple[str, ...]]:
    """Those that differ in the axes the policy splits."""
    seen: dict[tuple[str, ...], tuple[str, ...]] = {}
    for rest in permutations(GRID[1:]):
        order = (GRID[0], *rest)
        seen.setdefault(tuple(axis for axis in order if getattr(policy, axis) > 1), order)
    return list(seen.values())
