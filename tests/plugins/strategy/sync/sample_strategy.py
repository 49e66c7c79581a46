"""A data-parallel strategy for the tests: Local SGD that averages every second step."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync.local_sgd import LocalSGD


@dataclass(frozen=True)
class SampleStrategy(LocalSGD):
    name: ClassVar[str] = "sample_strategy"
    summary: ClassVar[str] = "a sample for the tests"

    every: int = 2


STRATEGY = SampleStrategy
