"""Public logs say what they say; what is not read is known by name."""

import pytest

from importers.real_logs import is_right, public_logs
from shardwise.measured.diagnose.pace import pace_of, series_of, warm_up_of
from shardwise.programs.importers.logs import parse_log

LOGS = [*public_logs(), *public_logs("fresh_logs")]
NOT_READ = {"pytorch/torchtitan#2389": "two steps alone do not tell what a rate counts"}
MEGATRON = " iteration {0}/ 100 | elapsed time per iteration (ms): 5610.1 | global batch size: 128 | lm loss: 2.0E+00 |"


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.source[-60:])
def test_a_public_log_is_read(log):
    assert is_right(log) is (log.source not in NOT_READ)


def test_logs_are_of_many_programs():
    assert len(LOGS) >= 60
    assert len({log.program for log in LOGS}) >= 7


def test_a_first_step_that_was_none_is_left_out():
    assert warm_up_of([0.63, 10.2, 10.3]) == 1
    assert warm_up_of([1.0] * 8 + [2.1] * 8) == 0  # a slowdown


def test_timers_over_ranks_show_a_straggler():
    timers = [
        "times across ranks (ms):", "  forward-compute:", "     rank  0: 1000.00", "     rank  1: 1500.00",
        "(min, max) time across ranks (ms):", "    optimizer-inner-step ...........: (100.10, 101.20)",
    ]  # fmt: skip
    log = parse_log("\n".join(line for step in range(4) for line in (MEGATRON.format(step), *timers)))
    cause = next(each for each in pace_of(series_of(log), log).causes if each.code == "straggler")
    assert (cause.where, round(cause.excess_s, 6)) == ("rank 1", 0.5)
    assert {timer.name for timer in log.timers} == {"forward-compute", "optimizer-inner-step"}


def test_retries_of_the_allocator_are_their_own_cause():
    lines = [
        f"[titan] 2026-01-01 00:00:{10 + 2 * step:02}, - root - INFO - step: {step}  loss: 5  memory: 70.00GiB(99%)  "
        f"tps: {500 if step == 9 else 1000}" for step in range(12)
    ]  # fmt: skip
    lines.insert(9, "[titan] 2026-01-01 00:00:27, - root - WARNING - 3 CUDA memory allocation retries.")
    log = parse_log("\n".join(lines))
    causes = {cause.code for cause in pace_of(series_of(log), log).causes}
    assert "retries" in causes
    assert "spikes" not in causes
