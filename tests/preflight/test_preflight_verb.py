"""`shardwise preflight` from the command line."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from made_node import Made
from test_nodes import several

from shardwise.run.preflight.check import chosen
from shardwise.run.preflight.facts import encoded
from shardwise.show.cli import main

PLAN = ["llama-3-8b", "--on", "dgx-h100:32", "--tp", "8"]
NODE = ("gpus", "links", "network")


@pytest.fixture
def facts(tmp_path) -> str:
    folder = tmp_path / "facts"
    folder.mkdir()
    for node in several():
        (folder / f"{node.host}.json").write_bytes(encoded(node.facts))
    return str(folder)


def answer(capsys, *words: str) -> tuple[int, dict]:
    code = main(["preflight", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_this_machine_has_no_fail_without_a_plan(capsys):
    code, found = answer(capsys, "--skip", "disks", "--skip", "clock")
    assert code == 0
    assert found["counts"]["fail"] == 0
    assert sum(found["counts"].values()) == len(found["items"]) == len(chosen()) - 2
    assert {"item", "subject", "verdict", "evidence", "cure", "reads", "asks", "hosts"} == set(found["items"][0])


def test_recorded_nodes_are_ready_for_their_plan(facts, capsys):
    code, found = answer(capsys, *PLAN, "--gather", facts)
    assert (code, found["counts"]["fail"], found["hosts"]) == (0, 0, ["node1", "node2", "node3", "node4"])
    assert found["plan"]["groups"]["tp"][1] == list(range(8, 16))
    assert found["plan"]["environment"]["NCCL_CROSS_NIC"] == "0"
    verdicts = {item["item"]: item["verdict"] for item in found["items"]}
    assert verdicts["plan-size"] == verdicts["equal-versions"] == verdicts["rail-alignment"] == "pass"


def test_one_bad_node_ends_with_exit_code_1(facts, capsys):
    bad = Made(host="node9")
    bad.files["/sys/class/infiniband/mlx5_2/ports/1/state"] = "1: DOWN"
    (Path(facts) / "node9.json").write_bytes(encoded(bad.recorded().facts))
    code, found = answer(capsys, "--gather", facts)
    assert code == 1
    row = next(item for item in found["items"] if item["item"] == "nic-speed")
    assert (row["verdict"], row["hosts"]) == ("fail", ["node9"])
    assert "mlx5_2" in row["evidence"]


@pytest.mark.parametrize("words", [[], PLAN, ["--list"], ["--on", "dgx-h100:16", "--only", "network"]])
def test_page_fits_80_columns(words, facts, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for more in ([], ["--gather", facts] if words != ["--list"] else []):
        assert main(["preflight", *words, *more]) in (0, 1)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80
        assert lines


def test_facts_written_here_are_gathered(tmp_path, capsys):
    assert main(["preflight", "--out", str(tmp_path)]) == 0
    written = tmp_path / f"{socket.gethostname()}.json"
    assert written.is_file()
    assert "facts in" in capsys.readouterr().out
    assert main(["preflight", "--facts", "--only", "host"]) == 0
    assert json.loads(capsys.readouterr().out)["host"] == socket.gethostname()
    code, found = answer(capsys, "--gather", str(written), "--only", "host")
    assert (code, found["hosts"]) == (0, [socket.gethostname()])
    assert main(["preflight", "--out", str(tmp_path)]) == 0, "its own file is replaced"
    capsys.readouterr()
    (tmp_path / "theirs.json").write_text("{}")
    assert main(["preflight", "--out", str(tmp_path / "theirs.json")]) == 2


def test_measuring_alone_multiplies_and_writes(tmp_path, capsys):
    pytest.importorskip("torch")
    code, found = answer(capsys, "--measure", "--storage", str(tmp_path), "--budget", "2 s", "--only", "measured")
    verdicts = {item["item"]: item["verdict"] for item in found["items"]}
    assert (code, verdicts["storage"], verdicts["products"]) == (0, "pass", "pass")
    assert list(tmp_path.iterdir()) == []


def test_a_log_of_a_trial(tmp_path, capsys):
    from log_samples import log_of  # type: ignore[import-not-found]

    path = tmp_path / "megatron.log"
    path.write_text(log_of("megatron", [1.0, 1.01] * 30))
    code, found = answer(capsys, "--trial", str(path), "--only", "run-variance")
    assert (code, found["items"][0]["verdict"]) == (0, "pass")
    path.write_text(log_of("megatron", [1.0, 1.01, 1.0, 1.9] * 15))
    assert answer(capsys, "--trial", str(path), "--only", "run-variance")[1]["items"][0]["verdict"] == "warn"


@pytest.mark.parametrize(("words", "said"), [
    (["--only", "gpu-cuont"], "did you mean 'gpu-count'"), (["--skip", "everything"], "skip: 'everything'"),
    (["--tp", "8"], "tp: it says nothing without a model"), (["--gather", "no/such"], "gather: there is no file"),
    (["--storage", "."], "only looked at with --measure"), (["--measure", "--storage", "no/such"], "is not a folder"),
    (["--measure", "--budget", "0 s"], "budget: '0 s' is out of range"), (["--measure", "--budget", "soon"], "budget"),
    (["--gather", ".", "--measure"], "nothing is measured where facts are compared"), (["llama-3-8b"], "on: "),
    (["--trial", "no/such"], "run: there is no file"),
    (["--topology", "no/such"], "topology: 'no/such' cannot be read"),
    (["--on", "dgx-h100:0"], ""), (["--out", "no/such/file.json"], "out: "),
])  # fmt: skip
def test_mistakes_are_one_line(words, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if words[:2] == ["--gather", "."]:
        (tmp_path / "a.json").write_bytes(encoded(Made().recorded().facts))
    assert main(["preflight", *words]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    assert said in told


def test_a_policy_that_cannot_run_is_refused_with_the_rule(capsys):
    code, found = answer(capsys, "llama-3-8b", "--on", "8xh100", "--tp", "3")
    assert (code, found["legal"]) == (1, False)


def _ranks(tmp_path, launchers: int, ranks: int, *words: str) -> dict:
    """What the first rank prints, under as many torchruns as nodes."""
    pytest.importorskip("torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
                 "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}  # fmt: skip
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(launchers),
               "--nproc-per-node", str(ranks),
               "--master-addr", "127.0.0.1", "--master-port", str(port)]  # fmt: skip
    processes = [
        subprocess.Popen([*command, "--node-rank", str(number), "-m", "shardwise", "preflight", *words, "--json"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables, cwd=tmp_path)
        for number in range(launchers)
    ]  # fmt: skip
    said = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0] * launchers, said
    assert not any(out for out, _ in said[1:]), "the first rank alone tells"
    return json.loads(said[0][0])


def test_a_rank_that_does_not_come_is_told_in_one_line(monkeypatch, capsys):
    pytest.importorskip("torch")
    from shardwise.run.runtime.preflight import ranks

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    monkeypatch.setattr(ranks, "WAIT_S", 1.0)
    alone = {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": "lo",
    }
    for name, value in alone.items():
        monkeypatch.setenv(name, value)
    assert main(["preflight", "--budget", "1 s", "--only", "host"]) == 1
    assert "error: ranks: not all came" in capsys.readouterr().err


def test_two_ranks_on_one_node(tmp_path):
    plan = ["mnist-mlp", "--on", "2xh100", "--dp", "2", "--global-batch", "64"]
    found = _ranks(tmp_path, 1, 2, *plan, "--measure", "--budget", "5 s", "--skip", "disks")
    verdicts = {item["item"]: item for item in found["items"]}
    assert len(found["hosts"]) == 1
    assert verdicts["products"]["evidence"].startswith("2 devices, right and bitwise equal")
    assert verdicts["collectives"]["evidence"].startswith("dp ")
    assert verdicts["plan-groups"]["verdict"] == "pass"


def test_two_nodes_of_one_rank(tmp_path):
    found = _ranks(tmp_path, 2, 1, "--measure", "--budget", "5 s", "--skip", "disks")
    verdicts = {item["item"]: item for item in found["items"]}
    assert len(found["hosts"]) == 2
    assert verdicts["equal-versions"]["verdict"] == "pass"
    assert verdicts["clock-skew"]["evidence"].endswith("(measured)")
    assert verdicts["slow-link"]["verdict"] == "pass"
    assert verdicts["collectives"]["evidence"].startswith("all all_reduce of 1 MiB")
