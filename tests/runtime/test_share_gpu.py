"""Ranks that share a GPU, as far as a machine without one goes: what they are told, and what is refused."""

import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")
from shardwise.run.runtime import share_gpu
from shardwise.run.runtime.share_gpu import (
    SharedGpu,
    SharedGpuSeats,
    multi_process_service,
    rank_variables,
    run_script,
)
from shardwise.show.cli import main

TINY = str(Path(__file__).resolve().parents[2] / "docs" / "tiny-llama.json")
OWN = ["--help", "--help-all", "--schema", "--html", "x.html", "--version", "--", "-k=1"]
SCRIPT = """
import json, os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
kept = {name: os.environ[name] for name in sorted(os.environ) if name.startswith(("NCCL", "LOCAL", "CUDA_V", "GROUP"))}
with open(f"{sys.argv[2]}/rank-{dist.get_rank()}", "w") as file:
    json.dump({"sum": one.item(), "words": sys.argv[1:], **kept}, file)
dist.destroy_process_group()
"""


@pytest.fixture
def one_gpu(monkeypatch):
    """As if there were one."""

    def shared(ranks: int) -> SharedGpu:
        return SharedGpu(ranks=ranks, nccl=(2, 28, 9), mps="kernels in turns")

    monkeypatch.setattr(share_gpu, "shared_gpu", shared)


def test_every_rank_is_a_host_of_its_own_on_the_first_device(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    found = [rank_variables(rank) for rank in range(4)]
    assert len({one["NCCL_HOSTID"] for one in found}) == 4
    assert {one["CUDA_VISIBLE_DEVICES"] for one in found} == {"3"}
    assert {one["LOCAL_RANK"] for one in found} == {"0"}
    assert {(one["NCCL_NET"], one["NCCL_SOCKET_IFNAME"]) for one in found} == {("Socket", "lo")}
    for name in rank_variables(0):
        monkeypatch.delenv(name, raising=False)
    SharedGpuSeats().enter(2)
    assert os.environ["NCCL_HOSTID"] == "shardwise-2"
    for name in rank_variables(0):
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("one_gpu")
def test_a_script_for_torchrun_runs_as_it_stands(tmp_path, capfd):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    assert main(["run", "--share-gpu", "3", "--", str(file), "--json", str(tmp_path), *OWN]) == 0
    told = capfd.readouterr().err
    assert "3 ranks share one GPU on purpose" in told
    assert "2.28.9" in told
    ranks = [json.loads((tmp_path / f"rank-{rank}").read_text()) for rank in range(3)]
    assert [one["sum"] for one in ranks] == [3.0] * 3
    assert ranks[0]["words"] == ["--json", str(tmp_path), *OWN], "the script's own options"
    assert [one["NCCL_HOSTID"] for one in ranks] == [f"shardwise-{rank}" for rank in range(3)]
    assert {(one["LOCAL_RANK"], one["LOCAL_WORLD_SIZE"], one["GROUP_WORLD_SIZE"]) for one in ranks} == {("0", "1", "3")}


@pytest.mark.usefixtures("one_gpu")
@pytest.mark.parametrize(
    ("ends", "code", "words"),
    [("sys.exit(7)", 7, "rank 1 ended with 7"), (f"os.kill(os.getpid(), {signal.SIGKILL})", 137, "rank 1 was killed")],
)
def test_the_first_rank_to_fail_is_named_and_the_others_end(tmp_path, capfd, ends, code, words):
    file = tmp_path / "script.py"
    file.write_text(f"import os, sys, time\nif os.environ['RANK'] == '1':\n    {ends}\ntime.sleep(60)\n")
    assert main(["run", "--share-gpu", "2", "--", str(file)]) == code
    assert words in capfd.readouterr().err


def test_the_service_runs_as_long_as_the_ranks_and_no_longer(tmp_path, monkeypatch):
    log = tmp_path / "log"
    program = tmp_path / share_gpu.MPS
    program.write_text(f'#!/bin/sh\necho "$1$(test -n "$1" || cat) $CUDA_MPS_PIPE_DIRECTORY" >> {log}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(share_gpu, "RUNNING_MPS", tmp_path / "none")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    with multi_process_service():
        folder = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
    assert log.read_text().splitlines() == [f"-d {folder}", f"quit {folder}"]
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    program.write_text("#!/bin/sh\nexit 1\n")
    with multi_process_service():
        assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ, "it could not be started"


@pytest.mark.parametrize(
    ("words", "field", "cure"),
    [
        (["run", TINY, "--on", "4xh100", "--tp", "2", "--share-gpu", "4"], "share-gpu", "--device cpu"),
        (["run", TINY, "--on", "4xh100", "--tp", "2", "--share-gpu", "2"], "share-gpu", "--share-gpu 4"),
        (["run", TINY, "--on", "4xh100", "--tp", "2", "--share-gpu", "4", "--device", "cpu"], "device", "cuda"),
        (["verify", TINY, "--on", "4xh100", "--tp", "2", "--share-gpu", "4", "--fake"], "fake", "leave"),
        (["run", "--share-gpu", "2", "--", "train.py"], "share-gpu", "--device cpu"),
        (["run", "--share-gpu", "2", "--"], "script", "SCRIPT.py"),
    ],
)
def test_what_cannot_share_is_refused(capsys, words, field, cure):
    if share_gpu.RUNNING_MPS.exists():
        pytest.skip("a machine with a GPU")
    batch = ["--seq", "16", "--global-batch", "4"] if TINY in words else []
    place = words.index("--") if "--" in words else len(words)
    assert main([*words[:place], *batch, *words[place:]]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {field}:")
    assert cure in told


@pytest.mark.parametrize(("ranks", "release", "cure"), [(1, (2, 28, 9), "from 2 to"), (2, (2, 4, 8), "newer torch"),
                                                        (2, (), "newer torch")])  # fmt: skip
def test_too_few_ranks_or_an_old_nccl_is_a_line(monkeypatch, ranks, release, cure):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(share_gpu, "nccl_release", lambda: release)
    with pytest.raises(ValueError, match=cure):
        share_gpu.shared_gpu(ranks)


def test_a_signal_reaches_every_rank(tmp_path):
    file = tmp_path / "script.py"
    file.write_text(
        "import os, signal, time\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n"
        "open(os.environ['OUT'] + os.environ['RANK'], 'w').close()\n"
        "while len(os.listdir(os.path.dirname(os.environ['OUT']))) < 3: time.sleep(0.01)\n"
        "if os.environ['RANK'] == '0': os.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(60)\n"
    )
    (tmp_path / "out").mkdir()
    os.environ["OUT"] = str(tmp_path / "out" / "rank-")
    (tmp_path / "out" / "launcher").touch()
    try:
        assert run_script([str(file)], 2) == (0, "")
    finally:
        del os.environ["OUT"]


def test_the_benchmark_says_why_it_skips(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    import shared_gpu as bench

    monkeypatch.setattr("sys.argv", ["shared_gpu.py", "--json"])
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    bench.main()
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"nccl", "ranks", "losses_equal", "bytes_equal", "prove_programs", "time_mape"} < set(line)
    assert line["plans"] is None
    assert "no CUDA device" in line["skipped"]
