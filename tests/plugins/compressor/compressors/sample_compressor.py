"""A compressor for the tests: signs in blocks of 64."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.compressors.sign import Sign


@dataclass(frozen=True)
class SampleCompressor(Sign):
    name: ClassVar[str] = "sample_compressor"

    block: int = 64


COMPRESSOR = SampleCompressor
