"""Public logs say what they say; what is not read is known by name."""

import pytest

from importers.real_logs import is_right, public_logs

LOGS = public_logs()
NOT_READ = {
    "deepspeedai/DeepSpeed#1825": "the one rate of releases before 0.7 is a mean since the start",
    "linkedin/Liger-Kernel#110": "step_tokens_per_second of a callback",
    "NVIDIA-NeMo/Automodel#3473": "lines of NeMo Automodel",
    "pytorch/torchtitan#2389": "every rank prints each step",
}


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.source[-60:])
def test_a_public_log_is_read(log):
    assert is_right(log) is (log.source not in NOT_READ)


def test_logs_are_of_many_programs():
    assert len(LOGS) >= 60
    assert len({log.program for log in LOGS}) >= 7
