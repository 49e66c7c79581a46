"""How one policy does under one schedule: a row of the comparison, simulated or refused."""

from msgspec import Struct


class ScheduleOutcome(Struct, frozen=True, kw_only=True):
    schedule: str
    vpp: int
    step_s: float | None
    bubble_share: float | None
    idle_share: float | None
    peak_bytes: float | None
    """of the fullest stage"""
    closed_form_s: float | None
    why_not: str = ""
