"""`watch` and `doctor` as a user calls them."""

import json
import re
import sys
import urllib.request
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "diagnose"))
from made_records import MadeRun

from shardwise.measured.diagnose.causes import CURES
from shardwise.measured.diagnose.health.found import health_of
from shardwise.measured.diagnose.health.status import status_of
from shardwise.programs.exporters.grafana import dashboard
from shardwise.programs.exporters.prometheus import METRICS, serve_metrics
from shardwise.programs.importers.step_records import read_records, record_files
from shardwise.show.cli import main


def called(capsys, *words):
    code = main(list(map(str, words)))
    out, err = capsys.readouterr()
    return code, out, err


def answered(capsys, *words):
    code, out, err = called(capsys, *words, "--json")
    assert code in (0, 1), err
    return code, json.loads(out)


def test_watch_tells_a_slow_rank_with_its_cure(tmp_path, capsys):
    folder = MadeRun(slow={2: 1.6}, predicted=(0.10, 0.09, 0.11)).write(tmp_path / "records")
    code, out, _ = called(capsys, "watch", folder, "--once")
    assert code == 1
    plain = " ".join(out.split())
    assert "one slow rank (rank 2" in plain
    assert CURES["straggler"][:30] in plain
    assert "outside of its band" in plain


def test_watch_of_a_healthy_run(tmp_path, capsys):
    folder = MadeRun(predicted=(0.10, 0.09, 0.12)).write(tmp_path / "records")
    code, found = answered(capsys, "watch", folder, "--once")
    assert (code, found["alarms"]) == (0, [])
    assert found["status"]["within_band"]
    assert found["status"]["state"] == "finished"


def test_watch_follows_a_run_to_its_end(tmp_path, capsys):
    """It ends by itself: the run has ended."""
    folder = MadeRun(late_data={1: 0.1}).write(tmp_path / "records")
    code, found = answered(capsys, "watch", folder, "--every", "0.05")
    assert (code, found["alarms"][0]["cause"], found["alarms"][0]["rank"]) == (1, "data", 1)


def test_watch_of_a_log_beside_its_prediction(capsys):
    steps = Path(__file__).resolve().parents[2] / "docs" / "steps.csv"
    code, found = answered(capsys, "watch", steps, "--once", "--model", "llama-3-8b", "--on", "8xh100", "--zero", "3")
    why_code, why = answered(capsys, "why", steps, "--model", "llama-3-8b", "--on", "8xh100", "--zero", "3")
    assert (code, why_code) == (0, 0)
    assert found["status"]["predicted_step_s"] == pytest.approx(why["logs"][0]["predicted_step_s"])
    assert found["status"]["step_s"] == pytest.approx(6.9, rel=0.05)


def test_watch_writes_page_and_dashboard(tmp_path, capsys):
    folder = MadeRun(slow={2: 1.6}, predicted=(0.10, 0.09, 0.11)).write(tmp_path / "records")
    counters = tmp_path / "smi.csv"
    begin = 1_700_000_000
    counters.write_text("timestamp,gpu,sm_clock\n" + "".join(f"{begin + i},0,{1980 - 90 * i}\n" for i in range(10)))
    page, board = tmp_path / "run.html", tmp_path / "board.json"
    code, *_ = called(capsys, "watch", folder, "--once", "--html", page, "--dashboard", board, "--counters", counters)
    assert code == 1
    text = page.read_text()
    assert "<script" not in text
    assert all(word in text for word in ("one slow rank", "own work before the others are met", "sm_clock", "<svg"))
    assert json.loads(board.read_text())["panels"]
    page.write_text("mine")
    code, _, err = called(capsys, "watch", folder, "--once", "--html", page)
    assert code == 2
    assert "was not written by shardwise" in err


def test_the_dashboard_asks_for_what_is_exported():
    asked = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    names = {name for query in asked for name in re.findall(r"shardwise_\w+", query)}
    assert names <= set(METRICS)
    assert {name for name in METRICS if name not in names} == set(), "a metric that no panel shows"


def test_prometheus_is_answered(tmp_path):
    pytest.importorskip("prometheus_client")
    run = read_records(record_files(MadeRun(hot=0.4, predicted=(0.1, 0.09, 0.2)).write(tmp_path)), "")
    status = status_of(run, health_of(run))
    port = serve_metrics(0, "127.0.0.1", lambda: (status, {"data": 2}, ["data"]))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    values = {m[1]: float(m[2]) for m in re.finditer(r"^(shardwise_\w+(?:\{[^}]*\})?) ([-+.e0-9]+)$", text, re.M)}
    assert values["shardwise_step_seconds"] == pytest.approx(status.step_s)
    assert values["shardwise_steps_total"] == 80
    assert values['shardwise_alarms_total{cause="data"}'] == 2
    assert values['shardwise_phase_seconds{phase="compute",rank="1"}'] == pytest.approx(0.08, rel=0.1)
    exported = {name.split("{")[0] for name in values}
    measured = set(METRICS) - {"shardwise_all_to_all_seconds", "shardwise_predicted_peak_memory_bytes"}
    assert exported >= measured


def test_prometheus_missing_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    folder = MadeRun().write(tmp_path / "records")
    code, _, err = called(capsys, "watch", folder, "--once", "--prometheus", "0")
    assert code == 2
    assert "shardwise[watch]" in err


@pytest.mark.parametrize(("words", "said"), [
    (("watch", "nowhere"), "run: there is no file 'nowhere'"), (("watch", "."), "holds no records of ranks"),
    (("watch", "records", "--every", "0"), "every: 0 is out of range"),
    (("watch", "records", "--prometheus", "70000"), "is not a port"),
    (("watch", "records", "--once", "--counters", "words.txt"), "counters: words.txt holds none that are known"),
    (("why", "nowhere"), "run: there is no file 'nowhere'"), (("why", "empty"), "no files of a run"),
    (("why", "records", "--checkpoints", "nowhere"), "checkpoints: 'nowhere' is not a folder"),
])  # fmt: skip
def test_what_cannot_be_done_is_said_in_one_line(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    MadeRun(ranks=2, steps=20).write(tmp_path / "records")
    (tmp_path / "empty").mkdir()
    (tmp_path / "words.txt").write_text("nothing here\n")
    code, out, err = called(capsys, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_doctor_reads_logs_where_no_rank_left_records(tmp_path, capsys):
    log = "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n[rank0]: Connection reset by peer\n"
    (tmp_path / "train.log").write_text(log)
    code, found = answered(capsys, "why", tmp_path)
    assert (code, found["ended"]) == (1, "failed")
    assert (found["causes"][0]["cause"], found["causes"][0]["rank"]) == ("ecc", 1)
    assert found["causes"][0]["cure"] == CURES["ecc"]


def test_doctor_and_watch_name_the_same_cause(tmp_path, capsys):
    folder = MadeRun(leak={3: 2.0**21}).write(tmp_path / "records")
    _, watched = answered(capsys, "watch", folder, "--once")
    _, seen = answered(capsys, "why", tmp_path)
    assert watched["alarms"] == seen["causes"] != []
