"""What happened first, on which rank, and what was lost: of records, dumps, lines of logs and counters."""

import json
import os

import pytest
from made_records import BEGIN, MadeRun

from shardwise.measured.diagnose.counters import counter_causes
from shardwise.measured.diagnose.failure_lines import sign_of
from shardwise.measured.diagnose.health.found import health_of
from shardwise.measured.diagnose.postmortem import SavedState, diagnose
from shardwise.measured.diagnose.recorder import stuck_in
from shardwise.measured.record.step import RunEvent
from shardwise.programs.importers.counters import parse_counters
from shardwise.programs.importers.flight_recorder import read_dump
from shardwise.programs.importers.run_folder import read_folder
from shardwise.programs.importers.step_records import read_records, record_files
from shardwise.programs.importers.straggler_trace import is_straggler_trace

SAVED = (SavedState("step-00000060", 60, ""), SavedState("step-00000040", 40, ""))
LOST = "rank 0: step 81, all_reduce over dp failed: Timed out waiting 5000ms; no sign of rank 2"


def asked(made, folder, saved=SAVED, stuck=(), lines=()):
    run = read_records(record_files(made.write(folder)), "")
    return diagnose(run, health_of(run), stuck, saved, lines)


def test_a_healthy_run(tmp_path):
    found = asked(MadeRun(), tmp_path)
    assert (found.ended, found.causes, found.lost_steps) == ("finished", (), 20)


def test_a_killed_rank_is_named_by_its_launcher(tmp_path):
    event = RunEvent(what="rank ended", at_s=BEGIN + 9, rank=2, text="rank 2 was killed by signal 9 (SIGKILL)")
    ends = {0: LOST.replace("2", "1"), 1: LOST, 2: None, 3: LOST}
    found = asked(MadeRun(ends=ends, events=(event,)), tmp_path)
    assert (found.ended, found.causes[0].code, found.causes[0].rank) == ("failed", "killed", 2)
    assert found.resume.step == 60
    assert found.lost_s == pytest.approx(20 * 0.105, rel=0.1)


def test_a_silent_rank_wrote_no_end(tmp_path):
    found = asked(MadeRun(ends={0: LOST, 1: LOST, 2: None, 3: LOST}), tmp_path)
    assert (found.causes[0].code, found.causes[0].rank) == ("silent", 2)


def test_a_full_disk(tmp_path):
    event = RunEvent(
        what="save failed", at_s=BEGIN + 9, step=60, text="checkpoint of step 60: No space left on device (rank 1)"
    )
    why = "stopped after step 61: a checkpoint could not be written; the last checkpoint is of step 40"
    found = asked(MadeRun(ends=dict.fromkeys(range(4), why), events=(event,)), tmp_path)
    assert [cause.code for cause in found.causes] == ["disk_full"]


def test_asked_to_end_is_no_failure(tmp_path):
    why = "stopped after step 80: SIGTERM; the last checkpoint is of step 80"
    found = asked(MadeRun(ends=dict.fromkeys(range(4), why)), tmp_path)
    assert (found.ended, [cause.code for cause in found.causes]) == ("stopped", ["stopped"])


def test_a_damaged_checkpoint_leads_to_the_one_before(tmp_path):
    found = asked(MadeRun(), tmp_path, (SavedState("step-00000080", 80, "rank-00000.bin is missing"), *SAVED))
    assert found.causes[0].code == "damaged_checkpoint"
    assert (found.resume.step, found.lost_steps) == (60, 20)


def test_what_broke_comes_before_what_was_slow(tmp_path):
    event = RunEvent(what="rank ended", at_s=BEGIN + 9, rank=1, text="rank 1 was killed by signal 11 (SIGSEGV)")
    made = MadeRun(slow={3: 1.7}, ends={0: LOST, 1: None, 2: LOST, 3: LOST}, events=(event,))
    assert [(cause.code, cause.rank) for cause in asked(made, tmp_path).causes] == [("segfault", 1), ("straggler", 3)]


@pytest.mark.parametrize(("line", "code", "rank"), [
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out_of_memory", None),
    ("[rank3]: OSError: [Errno 28] No space left on device", "disk_full", 3),
    ("NVRM: Xid (PCI:0000:9b:00): 79, pid=2024380, GPU has fallen off the bus.", "gpu_error", None),
    ("NVRM: Xid (PCI:0000:9b:00): 119, pid=2, name=nvidia-smi, Timeout after 6s of waiting for RPC", "gpu_error", None),
    ("[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)", "silent", 5),
    ("  exitcode  : -9 (pid: 1234)", "killed", None),
    ("stopped after step 12: the loss is nan; there is no checkpoint", "not_finite", None),
    ("rank 0: step 31, all_reduce over dp failed: x; no sign of rank 2", "silent", 2),
    ("step: 20  loss: 7.1  memory: 49.58GiB(52.2%)  tps: 5,980", "", None),
    ("NVRM: Xid (PCI:0000:9b:00): 13, pid=2, Graphics Exception", "illegal_address", None),
])  # fmt: skip
def test_lines_by_which_programs_break(line, code, rank):
    assert sign_of(line) == ((code, rank) if code else None)


def dump(folder, rank, asked_for, sizes=((4,),), done=None):
    """As torch 2.13 writes it under gloo: numbers as texts, the group's configuration under no name."""
    entries = [{"collective_seq_id": number, "pg_id": 0, "process_group": ["0", "default_pg"], "is_p2p": False,
                "profiling_name": "gloo:all_reduce", "input_sizes": [list(s) for s in sizes], "state": "scheduled",
                "retired": number <= (asked_for if done is None else done)}
               for number in range(1, asked_for + 1)]  # fmt: skip
    ended = (asked_for if done is None else done) - 1
    status = {"0": {"last_enqueued_collective": str(asked_for), "last_completed_collective": str(ended)}}
    path = folder / f"flight-recorder-{rank:05}.json"
    path.write_text(json.dumps({"version": "2.10", "entries": entries, "pg_status": status, "nccl_comm_state": {},
                                "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}}}))  # fmt: skip
    return read_dump(path)


def test_recorders_of_gloo_tell_who_did_not_come(tmp_path):
    stuck = stuck_in([dump(tmp_path, 0, 5, done=4), dump(tmp_path, 1, 4), dump(tmp_path, 2, 5, done=4)])
    assert [(each.number, each.missing) for each in stuck] == [(5, ("rank 1",))]
    found = diagnose(None, None, stuck, (), ())
    assert (found.causes[0].code, found.causes[0].rank) == ("silent", 1)


def test_recorders_that_agree_stand_nowhere(tmp_path):
    assert stuck_in([dump(tmp_path, rank, 5) for rank in range(3)]) == []


def test_recorders_with_different_calls_are_a_mistake_of_the_program(tmp_path):
    dumps = [dump(tmp_path, 0, 5, done=4), dump(tmp_path, 1, 5, done=4), dump(tmp_path, 2, 5, ((8,),), done=4)]
    found = diagnose(None, None, stuck_in(dumps), (), ())
    assert (found.causes[0].code, found.causes[0].rank) == ("program", 2)


SMI = "timestamp, index, clocks.current.sm [MHz], temperature.gpu\n" + "".join(
    f"2026/11/16 10:00:{second:02}.000, {gpu}, {1200 if gpu == 1 and second > 20 else 1980} MHz, 60\n"
    for second in range(0, 50, 5) for gpu in range(3)
)  # fmt: skip
ETHTOOL = """2026-11-16 10:00:00
NIC statistics:
     rx_prio3_pause_duration: 1000
     rx_discards_phy: 4
     rx_bytes_phy: 5
2026-11-16 10:00:10
NIC statistics:
     rx_prio3_pause_duration: 801000
     rx_discards_phy: 9
     rx_bytes_phy: 50
"""
RDMA = "link mlx5_0/1 rx_write_requests 5 out_of_sequence 0 \nlink mlx5_0/1 rx_write_requests 9 out_of_sequence 12 \n"
DCGM = """# HELP DCGM_FI_DEV_XID_ERRORS x
DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-1",Hostname="n7"} 79
DCGM_FI_DEV_MEMORY_TEMP{gpu="3",UUID="GPU-1"} 9223372036854775794
"""


@pytest.mark.parametrize(("text", "codes", "where"), [
    (SMI, ["throttled"], "index 1"), (ETHTOOL, ["paused", "losses"], "eth2"), (RDMA, ["losses"], "mlx5_0/1"),
    (DCGM, ["gpu_error"], "Hostname n7, gpu 3"),
])  # fmt: skip
def test_counters(text, codes, where):
    found = counter_causes(parse_counters(text, "eth2"))
    assert [cause.code for cause in found] == codes
    assert found[0].where == where


def test_the_share_of_a_pause_is_of_the_time_between():
    assert "8.0%" in counter_causes(parse_counters(ETHTOOL, "eth2"))[0].evidence


def test_quiet_counters_say_nothing():
    quiet = ETHTOOL.replace("801000", "1000").replace(": 9\n", ": 4\n")
    assert counter_causes(parse_counters(quiet, "eth2")) == []
    assert parse_counters("no counters\nat all: here\n") == []
    missing = [series for series in parse_counters(DCGM) if "TEMP" in series.name]
    assert missing == [], "a number that means: not known"


def test_what_is_no_folder_is_said(tmp_path):
    for name in ("n" * 5000, "missing"):
        with pytest.raises(ValueError, match="is not a folder; write the one"):
            read_folder(tmp_path / name)


def test_a_pipe_in_the_folder_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "trace.csv")
    assert not is_straggler_trace(tmp_path / "trace.csv")
