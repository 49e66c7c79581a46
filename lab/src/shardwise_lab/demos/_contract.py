"""What a demonstration is: a name, three lines for a network engineer, and how it is played."""

from collections.abc import Callable
from dataclasses import dataclass, field

from shardwise_lab.build import standing
from shardwise_lab.emulated import Emulated
from shardwise_lab.facts import DemoResult, LabComparison, Measured
from shardwise_lab.measured import check_bounds, measured_on
from shardwise_lab.order import LabWorld

CARD = 40e6 / 8
"""bytes/s of a card in demonstrations: slow enough for two busy cores"""
MOST_BYTES = 4e9


@dataclass
class Setting:
    """How long a demonstration may take, and what it has measured so far."""

    limit_s: float = 120.0
    realtime: bool = False
    said: Callable[[str], None] = lambda _: None
    message_s: float | None = None
    """calibrated by the first run, kept for the others"""
    runs: list[Measured] = field(default_factory=list)

    def run(self, fabric: Emulated, worlds: list[LabWorld]) -> Measured:
        check_bounds(fabric, worlds, self.limit_s, MOST_BYTES)
        self.said(f"running on {fabric.cluster.name}, {fabric.gpus} GPUs")
        with standing(fabric) as built:
            found = measured_on(built, worlds, self.limit_s, message_s=self.message_s, realtime=self.realtime)
        self.message_s = found.message_s
        self.runs.append(found)
        return found


Played = tuple[LabComparison, ...]


@dataclass(frozen=True)
class Demo:
    name: str
    explained: tuple[str, str, str]
    play: Callable[[Setting], Played]

    def played(self, setting: Setting) -> DemoResult:
        found = self.play(setting)
        return DemoResult(demo=self.name, explained=self.explained, comparisons=found, runs=tuple(setting.runs))


def ratio(what: str, slow: Measured, fast: Measured, row: int = 0) -> LabComparison:
    """How many times longer the same case took, measured and predicted."""
    return rows_ratio(what, slow, row, fast, row)


def rows_ratio(what: str, slow: Measured, slow_row: int, fast: Measured, fast_row: int) -> LabComparison:
    a, b = slow.rows[slow_row], fast.rows[fast_row]
    return LabComparison(
        what=what, measured=a.measured_s / b.measured_s, predicted=a.predicted_s / b.predicted_s, unit="x"
    )
