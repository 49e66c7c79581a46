"""Clocks as monitors write them; the forms are those of published logs, the figures are made up."""

import pytest

from shardwise.measured.diagnose.causes import Cause
from shardwise.measured.diagnose.clocks import ClockFinding, clocks_apart, level_apart
from shardwise.programs.importers.clock_log import parse
from shardwise.programs.importers.run_files import read_run

SMI = """timestamp, index, name, power.draw [W], temperature.gpu, clocks.current.sm [MHz], utilization.gpu [%], \
clocks_event_reasons.active
2026/09/11 04:19:41.982, 0, NVIDIA H100 80GB HBM3, 87.80 W, 33, 345 MHz, 0 %, 0x0000000000000001
2026/09/11 04:19:41.986, 1, NVIDIA H100 80GB HBM3, 90.96 W, 39, 345 MHz, 0 %, 0x0000000000000001
2026/09/11 04:19:42.990, 0, NVIDIA H100 80GB HBM3, 692.10 W, 61, 1755 MHz, 98 %, 0x0000000000000004
2026/09/11 04:19:42.994, 1, NVIDIA H100 80GB HBM3, 605.30 W, 88, 1305 MHz, 97 %, 0x0000000000000040
2026/09/11 04:19:43.990, 0, NVIDIA H100 80GB HBM3, 692.10 W, 61, 1755 MHz, 98 %, 0x0000000000000004
2026/09/11 04:19:43.994, 1, NVIDIA H100 80GB HBM3, 605.30 W, 88, 1305 MHz, 97 %, 0x0000000000000040
"""
DMON = """# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
    0     86     33      -      0      0      0      0      0      0   2619    345
    1     87     33      -      0      0      0      0      0      0   2619    345
    0    690     66     71    100     44      0      0      0      0   2619   1755
    1    690     88     71    100     44      0      0      0      0   2619   1305
"""
DCGMI = """#Entity   SMCLK   CLEVT     GPUTMP  POWER    TOTENRG
ID
    GPU 0  1755  0x00000004     71   699.8  1.284e+09
    GPU 1  1305  0x00000040     64   641.2  1.191e+09
"""
EXPORTER = """# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 1755
DCGM_FI_DEV_SM_CLOCK{gpu="1",UUID="GPU-b",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 1305
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 99
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 99
"""
WANDB = "".join(
    f'{{"_timestamp": {n}.0, "_runtime": {n}.0, "system.gpu.0.smClock": {a}, "system.gpu.0.gpu": {busy}, '
    f'"system.gpu.1.smClock": {b}, "system.gpu.1.gpu": {busy}, "system.cpu": 3.0}}\n'
    for n, (a, b, busy) in enumerate([(345, 345, 0), (1755, 1305, 98), (1755, 1305, 99)])
)
FORMS = {
    "nvidia-smi": SMI, "nvidia-smi dmon": DMON, "dcgmi dmon": DCGMI, "DCGM's exporter": EXPORTER,
    "Weights & Biases": WANDB,
}  # fmt: skip


@pytest.mark.parametrize("program", FORMS)
def test_the_clock_is_that_of_a_gpu_at_work(program):
    log = parse(FORMS[program])
    assert log is not None
    assert log.program == program
    assert [round(gpu.hz / 1e6) for gpu in log.gpus] == [1755, 1305]
    assert [gpu.gpu.rpartition("GPU ")[2] for gpu in log.gpus] == ["0", "1"]


def test_reasons_and_names_as_the_driver_gives_them():
    first, second = parse(SMI).gpus
    assert (first.reason, second.reason) == (
        "power cap in 100% of the samples", "hardware thermal slowdown in 100% of the samples",
    )  # fmt: skip
    assert first.device == "NVIDIA H100 80GB HBM3"
    words = SMI.replace("clocks_event_reasons.active", "clocks_throttle_reasons.sw_power_cap")
    assert parse(words.replace("0x0000000000000004", "Active")).gpus[0].reason.startswith("power cap")
    assert parse(EXPORTER).gpus[1].gpu == "n1 GPU 1"


@pytest.mark.parametrize("text", ["", "step: 1 loss: 2.0", "timestamp, clocks.sm [MHz]\n", "# gpu pclk\n", "{}", "[]",
                                  'DCGM_FI_DEV_SM_CLOCK{gpu="0"} nan\n', '{"gpu.0.smClock": "fast"}'])  # fmt: skip
def test_what_tells_no_clock_is_none(text):
    assert parse(text) is None


def test_a_monitor_beside_a_run_is_told_by_its_content(tmp_path):
    for name, text in FORMS.items():
        (tmp_path / f"{name.split()[0].strip(chr(39))}{len(text)}.txt").write_text(text)
    assert {log.program for log in read_run([tmp_path]).clocks} == set(FORMS)


def test_kernels_lose_as_much_as_the_clock_lacks_and_no_more_than_they_exceed():
    gpus = parse(SMI).gpus[1:]
    kernels = (Cause(code="compute", seconds=1.0), Cause(code="host", seconds=0.2))
    without = ClockFinding(gpus, boost_hz=1.74e9, counted_hz=None)
    found = {cause.code: cause.seconds for cause in clocks_apart(kernels, without, 0.8, None)}
    # a quarter of what follows the clock: 1305 of 1740 MHz
    assert found == {"compute": pytest.approx(0.8), "clocks": pytest.approx(0.2), "host": 0.2}
    beside = {cause.code: cause.seconds for cause in clocks_apart(kernels, without, 0.8, 0.9)}
    assert beside["clocks"] == pytest.approx(0.1)
    faster = ClockFinding(gpus, boost_hz=1.98e9, counted_hz=1.2e9)
    assert clocks_apart(kernels, faster, 0.8, 0.5) == kernels


def test_of_a_log_the_slowest_gpu_holds_all_and_is_named():
    finding = ClockFinding(parse(SMI).gpus, boost_hz=1.98e9, counted_hz=1.74e9)
    level, clocks = level_apart(Cause(code="level", seconds=5.0, predicted_s=3.0), finding, kernels_s=2.4)
    # kernels of 2.4 s at 1740 MHz take 3.2 s at 1305
    assert (clocks.seconds, clocks.where) == (pytest.approx(0.8), "GPU 1")
    assert level.seconds + clocks.seconds == pytest.approx(5.0)
    assert "thermal" in clocks.evidence
