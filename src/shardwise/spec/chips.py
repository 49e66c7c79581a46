"""Parts of a chip by architecture, the switches of fast domains, and counterparts in a TPU (catalog/chips.toml)."""

import tomllib
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from shardwise import catalog

TABLE = Path(catalog.__file__).with_name("chips.toml")


class ChipParts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one multiprocessor."""

    parts: int
    tensor_cores: int
    lanes: int
    warps: int
    registers: str
    flop_per_cycle: int
    """of one tensor core, dense, in 16 bits"""
    source: str
    tensor_memory: str = "0 B"
    l2_bandwidth: str = "0 GB/s"


class SwitchedDomain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    generation: int
    gpus: int
    switches: int
    ports: int
    pattern: tuple[int, ...]
    """links of one GPU to each switch"""
    source: str


class Counterpart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    gpu: str
    tpu: str
    what: str


class ChipTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    date: str
    architecture: dict[str, ChipParts]
    domain: tuple[SwitchedDomain, ...]
    tpu: tuple[Counterpart, ...]


@cache
def chip_table() -> ChipTable:
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), ChipTable)
