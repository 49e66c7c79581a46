"""What training steps look like on a port: one burst, or a comb."""

import numpy as np

from shardwise_lab.demos._contract import CARD, Demo, Played, Setting
from shardwise_lab.emulated import emulated_of
from shardwise_lab.facts import LabComparison, PortLoad
from shardwise_lab.knobs import Knobs
from shardwise_lab.order import LabWorld

BUSY = 0.5
"""share of line rate above which a bin counts as busy"""


def _trained(setting: Setting, training: str) -> Played:
    world = LabWorld(order=(0, 1, 2, 3), training=training, steps=4, width=256)
    found = setting.run(emulated_of("star4", Knobs(card_bytes_per_s=CARD)), [world])
    (row,), (load,) = found.rows, found.loads
    busiest = max(row.ports, key=lambda port: port.predicted_bytes)
    return (
        LabComparison(what="exchange of a step", measured=row.measured_s, predicted=row.predicted_s, unit="s"),
        LabComparison(what="bytes a step, busiest port", measured=busiest.measured_bytes,
                   predicted=busiest.predicted_bytes, unit="bytes"),
        LabComparison(what="share of 10 ms bins above half of line rate",
                   measured=busy_share(load.measured_bytes_per_s, load),
                   predicted=busy_share(load.predicted_bytes_per_s, load), unit="share"),
        LabComparison(what="peak over mean load", measured=_peak(load.measured_bytes_per_s),
                   predicted=_peak(load.predicted_bytes_per_s), unit="x"),
    )  # fmt: skip


def busy_share(rates: tuple[float, ...], load: PortLoad) -> float:
    return float((np.array(rates) > BUSY * load.capacity_bytes_per_s).mean())


def _peak(rates: tuple[float, ...]) -> float:
    mean = float(np.mean(rates))
    return float(np.max(rates)) / mean if mean else 0.0


DDP = Demo("ddp-burst", (
    "Data parallelism: every rank computes alone, then all gradients are summed at once (DistributedDataParallel).",
    "On a port: silence, then a flat burst at line rate on all NICs at the same moment, then silence again.",
    "Five-minute averages show a third of the link; size buffers and ECN for the burst, not for the average.",
), lambda setting: _trained(setting, "ddp"))  # fmt: skip
FSDP = Demo("fsdp-comb", (
    "Sharded data parallelism (FSDP): weights are gathered layer by layer, forward and backward, gradients scattered.",
    "On a port: a comb, one tooth a layer, instead of one burst; about twice the bytes of data parallelism here.",
    "(1.5 times in theory: gloo's reduce-scatter moves an all-reduce's bytes, NCCL's does not.)",
), lambda setting: _trained(setting, "fsdp"))  # fmt: skip
