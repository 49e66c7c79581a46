"""The published times of a restart and a save: catalog/restart.toml as types."""

import tomllib
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from shardwise import catalog

TABLE = Path(catalog.__file__).parent / "restart.toml"


class Detection(Struct, frozen=True, forbid_unknown_fields=True):
    timeout_s: float
    inspected_s: dict[str, float]
    """by component"""


class Scheduling(Struct, frozen=True, forbid_unknown_fields=True):
    gpus: list[int]
    requeue_s: list[float]
    warm_standby_times_faster: float


class FirstSteps(Struct, frozen=True, forbid_unknown_fields=True):
    groups_s: float
    warm_up_steps: float


class StorageRates(Struct, frozen=True, forbid_unknown_fields=True):
    node_bytes_per_s: float
    most_written_per_s: float
    most_read_per_s: float


class Stalls(Struct, frozen=True, forbid_unknown_fields=True):
    asynchronous_s: float
    memory_s: float
    beyond_memory: float


class BadNodes(Struct, frozen=True, forbid_unknown_fields=True):
    repair_s: float
    slow_share: float
    slow_factor: float


class EnergyRange(Struct, frozen=True, forbid_unknown_fields=True):
    pue: tuple[float, float]
    usd_per_kwh: tuple[float, float]


class PublishedTimes(Struct, frozen=True, forbid_unknown_fields=True):
    date: str
    detect: Detection
    schedule: Scheduling
    start: FirstSteps
    storage: StorageRates
    save: Stalls
    nodes: BadNodes
    energy: EnergyRange


@cache
def published_times() -> PublishedTimes:
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), PublishedTimes)
