"""`calibrate --from`: the form is recognised, the profile holds what the file says, and the planner uses it."""

import gzip
import json

import pytest
from foreign_files import JSON, MEGATRON, TEXT, trace

from shardwise.cost.calibrate.profile import profile_of
from shardwise.show.cli import main


@pytest.fixture(autouse=True)
def narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def calibrated(tmp_path, content: bytes | str, *words: str, name: str = "input"):
    source, out = tmp_path / name, tmp_path / f"{name}.toml"
    source.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["calibrate", "--from", str(source), "--out", str(out), *words]) == 0
    return profile_of(out)


def refused(tmp_path, capsys, content: bytes | str, *words: str) -> str:
    source, out = tmp_path / "input", tmp_path / "out.toml"
    source.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["calibrate", "--from", str(source), "--out", str(out), *words]) == 2
    assert not out.exists()
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    return shown.err


@pytest.mark.parametrize("content", [TEXT, json.dumps(JSON)], ids=["text", "json"])
def test_collectives_between_nodes_move_the_network(tmp_path, capsys, content):
    found = calibrated(tmp_path, content, "--on", "4x4xh100")
    assert found.device == "h100"
    assert found.network is not None
    assert list(found.network.factors) == ["network"]
    assert len(found.measured["collectives"]) == 2
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    words = [
        "estimate",
        "llama-3-8b",
        "--on",
        "4x4xh100",
        "--dp",
        "16",
        "--zero",
        "3",
        "--global-batch",
        "64",
        "--json",
    ]
    steps = []
    for more in ([], ["--profile", str(tmp_path / "input.toml")]):
        main([*words, *more])
        steps.append(json.loads(capsys.readouterr().out)["step_s"])
    assert steps[0] != steps[1]


def test_collectives_without_a_cluster_take_the_usual_fabric(tmp_path, capsys):
    assert calibrated(tmp_path, TEXT).network.cluster == "2x4xh100"
    assert "usual fabric" in capsys.readouterr().out
    assert "8 ranks" in refused(tmp_path, capsys, TEXT, "--on", "4xh100")


def test_a_trace_gives_kernels_and_keeps_what_a_profile_had(tmp_path, capsys):
    base = calibrated(tmp_path, TEXT.replace("H100 80GB HBM3", "H200"), name="base")
    packed = gzip.compress(json.dumps(trace()).encode())
    found = calibrated(tmp_path, packed, "--profile", str(tmp_path / "base.toml"), name="trace.json.gz")
    assert found.network == base.network
    assert 0.1 < found.gemm["bf16"].e_max <= 1
    assert set(found.attention["flash"]) == {"forward", "backward"}
    assert found.host.seconds_per_op == pytest.approx(8e-6)
    assert {"collectives", "trace_gemm", "trace_attention", "trace_launch"} == set(found.measured)
    assert "causal" in capsys.readouterr().out
    said = refused(tmp_path, capsys, TEXT, "--profile", str(tmp_path / "base.toml"))
    assert "'h200'" in said
    assert "'h100'" in said


def test_what_cannot_be_used(tmp_path, capsys):
    assert "not recognised" in refused(tmp_path, capsys, "hello\n")
    assert "shardwise learn input" in refused(tmp_path, capsys, MEGATRON)
    assert "'config' and 'results'" in refused(tmp_path, capsys, '{"a": 1}')
