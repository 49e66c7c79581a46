"""Time-outs in logs blame the rank that is behind, never the one that reports."""

from shardwise.measured.diagnose.failure_lines import UNEXPLAINED, failures_of
from shardwise.measured.diagnose.postmortem import diagnose
from shardwise.measured.diagnose.timeouts import timed_out

REPORT = (
    "[rank{0}]:[E1 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={1}, OpType={2}, Timeout(ms)=600000) ran"
)
WORK = (
    "[rank{0}]:[E1 ProcessGroupNCCL.cpp:1785] [PG ID {3} PG GUID {4} Rank {0}] Exception detected by watchdog at work: "
    "{1}, last enqueued NCCL work: {2}, last completed NCCL work: 7"
)


def asked(*lines):
    return diagnose(None, None, (), (), failures_of(lines, [None] * len(lines)))


def test_the_rank_whose_last_call_is_earlier_is_behind():
    reports = [REPORT.format(rank, 90 if rank != 5 else 61, "ALLREDUCE") for rank in range(8)]
    late = timed_out(reports)
    assert (late.behind, late.number) == ((5,), 61)
    assert asked(*reports).causes[0].rank == 5


def test_nobody_is_blamed_where_all_report_one_collective():
    reports = [REPORT.format(rank, 90, "ALLREDUCE") for rank in (0, 1, 3)]
    assert timed_out(reports).behind == ()
    assert asked(*reports).causes[0].rank is None


def test_numbers_of_different_groups_are_not_compared():
    reports = [
        REPORT.format(rank, 90 + 900 * (rank > 1), "ALLGATHER" if rank > 1 else "ALLREDUCE") for rank in range(4)
    ]
    assert timed_out(reports).behind == ()
    work = [WORK.format(0, 8, 9, 1, "left"), WORK.format(1, 8, 9, 1, "left"),
            WORK.format(2, 8, 700, 1, "right"), WORK.format(3, 8, 700, 1, "right")]  # fmt: skip
    assert timed_out([*reports, *work]).behind == ()
    assert timed_out([*reports, *work, WORK.format(4, 8, 5, 2, "left"), WORK.format(5, 8, 9, 2, "left")]).behind == (4,)


def test_an_exception_of_one_rank_comes_before_the_time_outs_of_the_others():
    found = asked(
        REPORT.format(0, 9, "ALLREDUCE"), "[rank2]: Traceback (most recent call last):",
        '[rank2]:   File "train.py", line 3', "[rank2]: KeyError: 'labels'", REPORT.format(1, 9, "ALLREDUCE"),
    )  # fmt: skip
    assert (found.causes[0].code, found.causes[0].rank) == ("crash", 2)
    assert "KeyError: 'labels'" in found.causes[0].evidence


def test_an_error_of_no_known_kind_is_shown_and_called_not_understood():
    found = asked("step 1 loss 3", "frobnicator: ERROR: widget 7 refused")
    assert (found.ended, found.causes[0].code) == ("failed", UNEXPLAINED)
    assert "widget 7" in found.causes[0].evidence
    assert asked("step 1 loss 3", "errors: 0, grad_norm 1.0", "INFO done").causes == ()
