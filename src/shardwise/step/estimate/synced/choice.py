"""Strategies a plan may take, as the user names them. What knows them is imported when one is named: most never are."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from shardwise.step.estimate.synced.convergence import DENSE, ExtraSteps, extra_of, measured_texts

if TYPE_CHECKING:
    from shardwise.plugins.sync import Strategy

ANY = "any"


@dataclass(frozen=True)
class SyncChoice:
    text: str
    """the name and the settings that were stated"""
    optimizer: str
    """of the job: how many steps it takes depends on it"""

    @cached_property
    def strategy(self) -> "Strategy":
        from shardwise.plugins.sync._named import strategy_named

        return strategy_named(self.text)

    @cached_property
    def extra(self) -> ExtraSteps:
        return extra_of(self.strategy, self.optimizer)


def choice_of(text: str, optimizer: str = "adamw") -> SyncChoice | None:
    """None: the mean gradient, as the software does it."""
    if not text:
        return None
    found = SyncChoice(text, optimizer)
    _ = found.strategy  # an unknown name is refused here
    return None if text == DENSE else found


def choices_of(text: str, optimizer: str) -> list[SyncChoice | None]:
    """'any', or names with settings, by commas; None among them stands for the mean gradient."""
    if text.strip() == ANY:
        return [None, *(choice_of(each, optimizer) for each in measured_texts(optimizer))]
    from shardwise.plugins.sync._named import texts_of

    found: list[SyncChoice | None] = []
    for each in texts_of(text):
        choice = choice_of(each, optimizer)
        if choice not in found:
            found.append(choice)
    return found
