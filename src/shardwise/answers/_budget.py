"""What a plan may take at most: '500k USD', '30 d', '512 GPUs', '400 kW'."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from shardwise.question.studies.money import drawn_watts
from shardwise.report.report import Money
from shardwise.spec.cluster import Cluster
from shardwise.units import count_of, seconds_of, watts_of

FORMS = "write for example '500k USD', '30 d', '512 GPUs' or '400 kW'"
_DOLLARS = re.compile(
    r"^\s*(?:(?P<sign>\$)\s*)?(?P<number>[\d.,_eE+]+\s*[kKmMbBtT]?)\s*(?P<unit>USD|usd|dollars?|\$)?\s*$"
)


@dataclass(frozen=True)
class Budget:
    usd: float | None = None
    seconds: float | None = None
    gpus: int | None = None
    watts: float | None = None

    @property
    def needs_tokens(self) -> bool:
        return self.usd is not None or self.seconds is not None

    def misses(self, cluster: Cluster, run: Money | None) -> list[str]:
        """What is over the budget, in words; dollars count at the highest rent published, so that they hold."""
        words = []
        if self.gpus is not None and cluster.gpus > self.gpus:
            words.append("GPUs")
        if self.watts is not None and drawn_watts(cluster) > self.watts:
            words.append("watts")
        if run is not None and self.seconds is not None and run.seconds > self.seconds:
            words.append("time")
        if run is not None and self.usd is not None and (run.usd is None or run.usd[1] > self.usd):
            words.append("dollars")
        return words


def usd_of(text: str, what: str = "budget") -> float:
    match = _DOLLARS.match(text)
    if not match:
        raise ValueError(f"{what}: cannot read {text!r} as dollars; write for example '500k USD'")
    value = float(count_of(match["number"].strip(), what))
    if value <= 0:
        raise ValueError(f"{what}: {text!r} is out of range; write an amount above 0")
    return value


def budget_of(texts: Iterable[str]) -> Budget:
    found: dict[str, float | int] = {}
    for text in texts:
        kind, value = _one(text)
        if kind in found:
            raise ValueError(f"budget: {text!r} is a second limit on {kind}; write one of each")
        found[kind] = value
    return Budget(**found)  # type: ignore[arg-type]


def _one(text: str) -> tuple[str, float | int]:
    word = text.strip()
    if re.search(r"(usd|dollars?|\$)\s*$", word, re.IGNORECASE) or word.startswith("$"):
        return "usd", usd_of(word)
    if re.search(r"\d\s*[kKmMbB]\s*$", word):
        # nobody has 500k GPUs in mind
        return "usd", usd_of(word)
    if re.search(r"gpus?\s*$", word, re.IGNORECASE):
        return "gpus", _positive(count_of(re.sub(r"(?i)\s*gpus?\s*$", "", word), "budget"), text)
    if word.endswith("W"):
        return "watts", _positive(watts_of(word, "budget"), text)
    if re.search(r"(?<![A-Za-z])(s|min|h|d|w|(?:minute|hour|day|week|month)s?)\s*$", word):
        return "seconds", _positive(seconds_of(word, "budget"), text)
    raise ValueError(f"budget: cannot read {text!r}; {FORMS}")


def _positive(value: float, text: str) -> float:
    if value <= 0:
        raise ValueError(f"budget: {text!r} is out of range; write more than 0")
    return value


def checked_rent(rent: float | None) -> float | None:
    if rent is not None and not 0 < rent < 1e6:
        raise ValueError(f"rent: {rent:g} is out of range; write dollars per GPU hour, such as 2.5")
    return rent
