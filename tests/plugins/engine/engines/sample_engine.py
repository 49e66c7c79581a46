"""An engine for the tests: one shard after another, in this process."""

from collections.abc import Sequence

from shardwise.plugins.engines._contract import Answers, Engine, Setup, Work


def _start(work: Work, shards: Sequence[bytes], _: Setup) -> Answers:
    for place, shard in enumerate(shards):
        yield place, work(shard)


ENGINE = Engine(name="sample_engine", summary="a sample for the tests", start=_start)
