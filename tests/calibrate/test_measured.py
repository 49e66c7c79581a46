"""`calibrate` on this machine's processor, its reading of foreign files, and `--profile` on the verbs that take it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardwise.cost.calibrate.profile import profile_of
from shardwise.show.cli import main

pytestmark = pytest.mark.xdist_group("measured")  # they share what a fixture of theirs computes

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be measured")

from shardwise.cost.calibrate.measure import gemm  # noqa: E402
from shardwise.cost.calibrate.measure._bench import Bench, bench_on  # noqa: E402
from shardwise.cost.calibrate.measured import Calibration, calibration, driver_version  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def profile_path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("profiles") / "cpu.toml"
    start = time.perf_counter()
    assert main(["calibrate", "--device", "cpu", "--quick", "--out", str(path)]) == 0
    assert time.perf_counter() - start < 60
    return path


def test_a_quick_calibration_measures_everything(profile_path):
    found = profile_of(profile_path)
    assert found.complete
    assert (found.device, found.version, found.torch) == ("cpu", 1, str(torch.__version__))
    assert set(found.memory) == {"stream", "norm", "activation", "optimizer"}
    assert set(found.attention["flash"]) == {"forward", "backward"}
    assert 1e8 < found.peak_flops["fp32"] * found.gemm["fp32"].e_max < 1e13
    assert found.host is not None
    assert 1e-7 < found.host.seconds_per_op < 1e-2
    assert set(found.measured) == {"launch", "clock", "gemm", "attention", "memory"}


def test_bad_input(tmp_path, capsys):
    for words, said in (
        (["--out", str(tmp_path)], "is a folder"),
        (["--out", str(tmp_path / "no" / "p.toml")], "there is no such folder"),
        (["--out", str(tmp_path / "p.toml"), "--device", "tpu"], "cuda or cpu"),
        (["--out", str(tmp_path / "p.toml"), "--from", str(tmp_path / "none")], "cannot be read"),
        (["--device", "cpu"], "--out"),
    ):
        assert main(["calibrate", *words]) == 2
        shown = capsys.readouterr()
        assert said in shown.err
        assert shown.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_calibration_keeps_what_it_had(tmp_path, monkeypatch, capsys):
    def interrupt(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shardwise.cost.calibrate.measure.attention.attention_points", interrupt)
    path = tmp_path / "part.toml"
    assert main(["calibrate", "--device", "cpu", "--quick", "--out", str(path)]) == 130
    found = profile_of(path)
    assert not found.complete
    assert found.gemm
    assert not found.attention
    assert not found.memory
    assert "interrupted" in capsys.readouterr().out


def test_steps_announce_as_many_points_as_they_yield():
    work = calibration("cpu", quick=True)
    seen = list(work.run())
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert work.done


def test_a_larger_product_takes_longer():
    bench = Bench(torch.device("cpu"), 1e6, 0.01, 3)
    small, large = (bench.seconds(gemm.product_calls(bench, m, 512, 512, "fp32")) for m in (16, 2048))
    assert large > 4 * small


def test_buffers_leave_the_cache():
    bench = bench_on("cpu", quick=True)
    assert bench.copies(1e3) == 32
    assert bench.copies(bench.cache_bytes / 3) * bench.cache_bytes / 3 > bench.cache_bytes
    assert bench.copies(1e12) == 1


def test_a_calibration_without_points_has_an_empty_profile():
    found = Calibration(bench_on("cpu", quick=True)).profile()
    assert found.gemm == {}
    assert not found.complete
    assert isinstance(driver_version(), str)


def test_two_ranks_measure_collectives(tmp_path):
    path = tmp_path / "two.toml"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m",
               "shardwise", "calibrate", "--device", "cpu", "--quick", "--out", str(path)]  # fmt: skip
    environment = {
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
    }
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert found.returncode == 0, found.stderr[-2000:]
    network = profile_of(path).network
    assert network is not None
    assert set(network.fitted) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    assert network.factors == {}
    assert network.fitted["all_reduce"].ranks == 2


def test_every_verb_takes_a_profile(tmp_path, capsys):
    path = tmp_path / "p.toml"
    path.write_text(
        'name = "p"\ndevice = "h200"\nmemory_bandwidth = 4.8e12\n[peak_flops]\nbf16 = 989.4e12\n[gemm.bf16]\n'
        "e_max = 0.4\nk0 = 30\nwave = 0\nmemory_efficiency = 0.9\n[memory]\nstream = 0.5\n"
    )
    runs = tmp_path / "runs.csv"
    runs.write_text(
        "name,layers,hidden,heads,kv_heads,ffn,glu,vocab,seq,micro_batch,accum,recompute,precision,compiled,step_ms,"
        "peak_alloc_gib\nx,4,2048,16,8,4096,1,32000,2048,4,1,none,autocast,0,50,20\n"
    )

    def answer(words: list[str], key: str) -> tuple[float, float]:
        found = []
        for more in ([], ["--profile", str(path)]):
            assert main([*words, *more]) == 0
            data = json.loads(capsys.readouterr().out)
            for part in key.split("."):
                data = data[int(part)] if part.isdigit() else data[part]
            found.append(data)
        return found[0], found[1]

    for words, key in (
        (["estimate", "llama-3-8b", "--on", "8xh200", "--tp", "2", "--global-batch", "64", "--json"], "step_s"),
        (["plan", "llama-3-8b", "--on", "8xh200", "--global-batch", "64", "--json"], "best.0.step_s"),
        (["validate", "--data", str(runs), "--json", "-"], "rows.0.step_s"),
    ):
        shipped, mine = answer(words, key)
        assert mine > 1.2 * shipped
    shipped, mine = answer(["calc", "roofline", "h200", "--json"], "peak_flops_per_s")
    assert mine == pytest.approx(0.4 * shipped)
    assert main(["plan", "llama-3-8b", "--on", "8xh100", "--profile", str(path)]) == 2
    assert "measured on 'h200'" in capsys.readouterr().err
