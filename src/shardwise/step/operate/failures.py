"""How often a cluster fails, by component, as published for whole runs or fleets, or as its operator counted."""

from functools import cache

from msgspec import Struct

from shardwise import catalog
from shardwise.fields import Fields
from shardwise.spec.job import NO_FAILURES, USUAL_FAILURES
from shardwise.units import seconds_of

COMPONENTS = ("gpu", "hbm", "host", "nic", "network", "software", "silent")
NEEDS_NO_NODE = ("software",)
"""after these the same machines start again"""
DAY_S = 86_400.0
NODE_GPUS = 8
_FORM = (
    "write llama-3, rsc-1, rsc-2, opt-175b, off, '419/16384x54d' for events on GPUs in days, or '3.1 h' between two "
    "failures"
)


class FailureRates(Struct, frozen=True, kw_only=True):
    """Failures of one GPU with its share of everything around it, per second, by component."""

    name: str
    source: str
    by_component: dict[str, float]
    planned: float = 0.0
    """restarts somebody chose, per second of the whole run"""
    whole_job: float = 0.0
    """failures of a job whatever its size, per second"""
    note: str = ""
    """about the count itself"""

    @property
    def per_gpu(self) -> float:
        return sum(self.by_component.values())

    @property
    def per_thousand_node_days(self) -> float:
        return self.per_gpu * NODE_GPUS * DAY_S * 1000.0

    def mean_between_s(self, gpus: int) -> float:
        """Between two failures of a job on so many GPUs; infinite where nothing fails."""
        rate = self.per_gpu * gpus + self.whole_job
        return 1.0 / rate if rate > 0 else float("inf")

    def share(self, component: str) -> float:
        return self.by_component.get(component, 0.0) / self.per_gpu if self.per_gpu > 0 else 0.0

    @property
    def takes_node(self) -> float:
        """Share of failures after which a node has to be replaced."""
        return 1.0 - sum(self.share(component) for component in NEEDS_NO_NODE)


@cache
def published_rates(name: str) -> FailureRates:
    stem = catalog.resolve("failures", name)
    fields = Fields(catalog.entry("failures", stem), f"failures {stem}")
    for told in ("aliases", "gpu", "node_gpus"):
        fields.has(told)
    gpus, days = fields.whole("gpus"), fields.number("days", example="54")
    counts = fields.section("events", "'gpu: 148' under it")
    events = {each: counts.number(each) for each in COMPONENTS if counts.has(each)}
    counts.done()
    found = FailureRates(
        name=fields.text("name"), source=fields.text("source"), note=fields.text("note", default=""),
        by_component={each: count / (gpus * days * DAY_S) for each, count in events.items()},
        planned=fields.number("planned", 0.0) / (days * DAY_S),
    )  # fmt: skip
    fields.done()
    return found


def published() -> list[FailureRates]:
    """Every published rate, the lowest first: they differ threefold between clusters of one owner."""
    return sorted(map(published_rates, catalog.names("failures")), key=lambda rates: rates.per_gpu)


def rates_of(text: str, gpus: int) -> FailureRates:
    """A published name, a count of one's own, or a mean time between failures of this job."""
    word = text.strip()
    if word == NO_FAILURES:
        return FailureRates(name=NO_FAILURES, source="as asked: nothing fails", by_component={})
    if "/" in word:
        return _counted(word)
    if word[:1].isdigit():
        between = seconds_of(word, "failures")
        if between <= 0:
            raise ValueError(f"failures: {text!r} is out of range; write a time above 0, such as '3.1 h'")
        return FailureRates(
            name=word, source="as given", by_component=_as_published(1.0 / (between * gpus)),
        )  # fmt: skip
    try:
        return published_rates(word)
    except ValueError as problem:
        raise ValueError(f"failures: {str(problem).removeprefix('failure ')}; {_FORM}") from None


def _counted(word: str) -> FailureRates:
    events, _, run = word.partition("/")
    gpus, _, time = run.partition("x")
    try:
        count, size, seconds = float(events), int(gpus), seconds_of(time, "failures")
    except ValueError:
        raise ValueError(f"failures: cannot read {word!r}; {_FORM}") from None
    if not (0 < count < 1e9 and 0 < size < 10**9 and seconds > 0):
        raise ValueError(f"failures: {word!r} is out of range; {_FORM}")
    return FailureRates(name=word, source="as given", by_component=_as_published(count / (size * seconds)))


def _as_published(per_gpu: float) -> dict[str, float]:
    """A rate without causes, dealt out as the causes of the run whose causes are known best."""
    known = published_rates(USUAL_FAILURES)
    return {component: per_gpu * known.share(component) for component in known.by_component}
