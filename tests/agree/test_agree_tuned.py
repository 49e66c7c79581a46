"""Models that are tuned: the tiers count the same bytes, and simulation and closed form say the same."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as with_fields

from _agree_cases import cases
from _agree_gaps import gaps_of
from shardwise.spec.arch.tuned import tuned
from shardwise.spec.tuning import tuning_of

COUNT = 24
"""the first of the benchmark's own; number 19 is the first with tied ends apart and ZeRO 2"""


@pytest.mark.parametrize(("tune", "freeze"), [("lora", None), (None, "embeddings,first=1"), ("dora,rank=8", "first=1")])
def test_tuned_steps_agree(tune: str | None, freeze: str | None) -> None:
    tuning = tuning_of(tune, freeze)
    for sample in cases(COUNT):
        tuned(sample.model, tuning)
        found = gaps_of(replace(sample, job=with_fields(sample.job, tuning=tuning)), flows=False)
        assert found.bytes_gap <= 1e-6, (found.where, sample)
        assert abs(found.sim_gap) <= 0.02, sample
