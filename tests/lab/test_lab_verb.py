"""`shardwise lab` as a user runs it, as far as it needs no namespaces; one real run where there are some."""

import json
import shlex
from pathlib import Path

import pytest

from shardwise.show.cli import main
from shardwise.show.cli._frame import _takes
from shardwise_lab import probe
from shardwise_lab.bpf import _INSTRUCTION, program
from shardwise_lab.cli.app import EXAMPLES
from shardwise_lab.demos import DEMOS
from shardwise_lab.emulated import fabric_names
from shardwise_lab.facts import LabComparison, LabRow, Measured, PortBytes, PortLoad
from shardwise_lab.names import labs
from shardwise_lab.page import lab_page


def told(capsys, *words):
    code = main(["lab", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_its_examples_run_and_its_help_shows_them(capsys):
    assert main(["lab", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for example in EXAMPLES:
        assert f"shardwise {example}" in text
        assert main(shlex.split(example)) == 0
        capsys.readouterr()


def test_what_measures_lays_out_its_own_page_and_the_rest_is_recorded(capsys, tmp_path):
    assert [name for name in ("list", "demo", "run", "up", "down") if _takes(["lab", name], "--html")] == [
        "demo",
        "run",
    ]
    assert told(capsys, "list", "--html", str(tmp_path / "list.html"))[0] == 0
    assert all(name in (tmp_path / "list.html").read_text() for name in DEMOS)


def test_list_names_all_demos_and_fabrics(capsys):
    code, out, _ = told(capsys, "list", "--on", "two-leaves", "--json")
    found = json.loads(out)
    assert code == 0
    assert [each["name"] for each in found["demos"]] == list(DEMOS)
    assert all(len(each["explained"]) == 3 for each in found["demos"])
    assert {each["name"] for each in found["fabrics"]} == set(fabric_names())
    assert {"leaf 0 > spine 0", "spine 0 > leaf 1"} <= {each["link"] for each in found["links"]}
    assert told(capsys, "list")[0] == 0


def test_a_dry_run_says_what_would_be_done_and_does_nothing(capsys):
    before = labs()
    code, out, _ = told(capsys, "up", "rails", "--rate", "20 Mbps", "--dry-run", "--json")
    found = json.loads(out)
    assert (code, found["up"]) == (0, False)
    assert found["card_bytes_per_s"] == pytest.approx(2.5e6)
    assert found["dilation"] == pytest.approx(50e9 / 2.5e6)
    assert any("tbf rate 20000000bit" in line for line in found["commands"])
    for words in (("run", "--dry-run"), ("demo", "ecn", "--dry-run"), ("down", "--dry-run", "--json")):
        assert told(capsys, *words)[0] == 0
    assert labs() == before


@pytest.mark.parametrize(("words", "said"), [
    (("demo", "placment"), "placement"), (("run", "--sizes", "1 zb"), "sizes"),
    (("run", "--collective", "sum"), "all_"), (("run", "--on", "dgx-h100:64"), "2 to 16"),
    (("run", "--slow", "x=0.5"), "not a link"), (("run", "--slow", "x"), "LINK"),
    (("run", "--order", "0,0"), "order"), (("run", "--order", "0,9"), "order"), (("run", "--train", "tq"), "ddp"),
    (("run", "--train", "tp=3"), "4 GPUs"), (("run", "--train", "sync=local_sgd,every=90"), "times"),
    (("run", "--connections", "0"), "connections"), (("run", "--connections", "2"), "ring"),
    (("run", "--connections", "2", "--", "true"), "connections"), (("chaos", "kil-rank"), "kill-rank"),
    (("run", "--", "torchrun", "--nproc-per-node", "3", "x.py"), "4 GPUs"), (("run", "--", "no-such-program"), "found"),
    (("run", "--limit", "1 d"), "limit"), (("run", "--sizes", "900 MB"), "limit"), (("run", "--times", "0"), "times"),
    (("run", "--cut", "leaf"), "cut"), (("up", "star4", "--over", "2"), "over"), (("run", "--ecn", "1 B"), "ecn"),
    (("run", "--rate", "9 Gbps"), "rate"), (("run", "--window", "1 B"), "window"),
    (("run", "--buffer", "0 B"), "buffer"),
    (("demo", "ecn", "--html", "/no/such/folder/x.html"), "html"),
])  # fmt: skip
def test_bad_input_is_one_line(words, said, capsys):
    code, out, err = told(capsys, *words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert said in err


def test_what_is_missing_is_said(monkeypatch, capsys):
    monkeypatch.setattr(probe.shutil, "which", lambda _: None)
    code, _, err = told(capsys, "demo", "incast")
    assert code == 2
    assert "'ip'" in err
    assert "iproute2" in err


def test_without_root_or_user_namespaces_it_stops(monkeypatch, capsys):
    monkeypatch.setattr(probe.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(probe, "_may_unshare", lambda: False)
    code, _, err = told(capsys, "up")
    assert code == 2
    assert "sudo" in err


def test_a_machine_may_forbid_labs(monkeypatch, capsys):
    monkeypatch.setenv("SHARDWISE_NO_LAB", "1")
    code, _, err = told(capsys, "demo", "incast")
    assert code == 2
    assert "SHARDWISE_NO_LAB" in err


def test_jumps_of_the_marking_program_land_inside_it():
    code = program(3, 5_000_000, 30_000)
    rows = [_INSTRUCTION.unpack_from(code, at) for at in range(0, len(code), _INSTRUCTION.size)]
    assert rows[-1][0] == 0x95
    ends = [at + 1 + row[2] for at, row in enumerate(rows) if row[0] & 7 == 5 and row[0] not in (0x85, 0x95)]
    assert all(0 < end < len(rows) for end in ends)
    # out of both tests: where the answer is set to "pass it on"
    assert [rows[end][0] for end in (ends[0], ends[-1])] == [0xB7, 0xB7]


def made_run() -> Measured:
    port = PortBytes(link="leaf 0 > node 0 gpu 0", predicted_bytes=1e6, measured_bytes=1.01e6, queue_bytes=4000)
    row = LabRow(fabric="star4", order=(0, 1), op="all_reduce", bytes=1_000_000, measured_s=0.2, turns_s=(0.2,),
              rank_s=(0.2, 0.2), predicted_s=0.19, predicted_rank_s=(0.19, 0.19), blind_s=0.1, error=-0.05,
              bytes_error=0.01, ring=True, ports=(port,))  # fmt: skip
    load = PortLoad(what="all_reduce", link=port.link, bin_s=0.01, capacity_bytes_per_s=5e6,
                measured_bytes_per_s=(0.0, 5e6, 4e6), predicted_bytes_per_s=(0.0, 5e6, 5e6),
                queue_bytes=(0, 4000, 0))  # fmt: skip
    return Measured(fabric="star4", gpus=4, dilation=1e4, card_bytes_per_s=5e6, message_s=1e-4, rows=(row,),
                    loads=(load,), ports=(port,), drops={port.link: 3}, retransmits=1, timeouts=0, marks_received=2,
                    cpu_pressure=0.5, ticks=100, ticks_missed=2)  # fmt: skip


def test_the_page_is_one_file_with_both_curves():
    page = lab_page("a <title>", [made_run()], ("one", "two", "three"),
                    [LabComparison(what="ratio", measured=3.9, predicted=4.0, unit="x")])  # fmt: skip
    assert page.startswith("<!DOCTYPE html>")
    assert "a &lt;title&gt;" in page
    for word in ("measured", "predicted", "line rate", "queue", "3.90 x", "4.00 x", "-5.0%", "1/10,000"):
        assert word in page, word
    assert "http://" not in page.replace("http://www.w3.org/", "")


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces")
def test_a_run_with_torch_is_near_its_prediction(tmp_path, capsys):
    pytest.importorskip("torch", reason="torch is not installed")
    page = tmp_path / "run.html"
    words = ("run", "--on", "star4", "--rate", "30 Mbps", "--sizes", "1200 kB", "--html", str(page), "--json")
    code, out, err = told(capsys, *words)
    assert code == 0, err
    (row,) = json.loads(out)["run"]["rows"]
    assert row["bytes_error"] < 0.02
    assert 0.5 < row["predicted_s"] / row["measured_s"] < 1.5
    assert "<svg" in Path(page).read_text(encoding="utf-8")
