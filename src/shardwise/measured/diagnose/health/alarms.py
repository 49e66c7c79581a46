"""Alarms that do not flap: raised when a cause was found in two looks running, lowered when it was missing in five."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shardwise.measured.diagnose.causes import Cause

RAISED, LOWERED = 2, 5


@dataclass
class Alarm:
    cause: Cause
    seen: int = 0
    missed: int = 0
    raised: bool = False


@dataclass
class Alarms:
    known: dict[tuple[str, int | None], Alarm] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)
    """how often each cause was raised"""

    def look(self, causes: Sequence[Cause], *, at_once: bool = False) -> tuple[list[Cause], list[Cause]]:
        """(raised now, lowered now). `at_once`: there will be no second look."""
        here = {(cause.code, cause.rank): cause for cause in causes}
        raised, lowered = [], []
        for key, cause in here.items():
            alarm = self.known.setdefault(key, Alarm(cause))
            alarm.cause, alarm.seen, alarm.missed = cause, alarm.seen + 1, 0
            if not alarm.raised and (at_once or alarm.seen >= RAISED):
                alarm.raised = True
                self.count[cause.code] = self.count.get(cause.code, 0) + 1
                raised.append(cause)
        for key in [key for key in self.known if key not in here]:
            alarm = self.known[key]
            alarm.seen, alarm.missed = 0, alarm.missed + 1
            if not alarm.raised or alarm.missed >= LOWERED:
                lowered += [alarm.cause] if alarm.raised else []
                del self.known[key]
        return raised, lowered

    @property
    def up(self) -> list[Cause]:
        return [alarm.cause for alarm in self.known.values() if alarm.raised]
