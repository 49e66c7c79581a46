"""Measured runs of hybrid models: their shape comes from the catalog, and the predictions hold.

Rows as NVIDIA published them: NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md (26.08) and
performance-summary-archive.md (26.04.01), NVIDIA/dgxc-benchmarking v25.05.05.
"""

import pytest

from shardwise.measured.validate.predict import Prediction, predict
from shardwise.measured.validate.table import MeasuredRow

SHARED = {"seq": "8192", "pp": "1", "vpp": "1", "cp": "1", "zero_stage_or_fsdp": "1", "flash_attention": "1"}
TRAY = {"gpu": "GB300", "gpus_per_node": "4", "internode_gbps_per_gpu": "800", "dtype": "mxfp8", "tp": "1", "sp": "0"}
NANO = {"model": "Nemotron-3-Nano", "layers": "52", "gpus": "8", "ep": "8", "dp": "8", "micro_batch": "4"}
SUPER = {"model": "Nemotron-3-Super", "gpus": "64", "ep": "64", "dp": "64", "micro_batch": "1"}
HALVES = SUPER | {"gpu": "GB200", "internode_gbps_per_gpu": "400", "tp": "2", "sp": "1", "dp": "32"}
DENSE = {
    "model": "Nemotron-H-56B", "layers": "118", "gpu": "H100-80GB-SXM", "gpus": "256", "gpus_per_node": "8",
    "internode_gbps_per_gpu": "400", "dtype": "fp8", "tp": "8", "sp": "1", "dp": "32", "micro_batch": "1",
}  # fmt: skip
RUNS = {
    "nano": (TRAY | NANO, "NeMo/Megatron-Bridge 26.08", "512", 39936.0),
    "nano before": (TRAY | NANO, "NeMo/Megatron-Bridge 26.04.01", "512", 37888.0),
    "super": (TRAY | SUPER, "NeMo/Megatron-Bridge 26.08", "512", 9856.0),
    "super over two": (TRAY | HALVES, "NeMo/Megatron-Bridge 26.08", "512", 7040.0),
    "super over two before": (TRAY | HALVES, "NeMo/Megatron-Bridge 26.04.01", "512", 6656.0),
    "dense hybrid": (DENSE, "NeMo (dgxc v25.05.05)", "768", 1546.44),
}


def predicted(**cells: str) -> Prediction:
    return predict([MeasuredRow(row=0, text=SHARED | {"source": "published"} | cells)])[0]


@pytest.mark.parametrize("name", RUNS)
def test_published_runs(name: str) -> None:
    cells, software, batch, speed = RUNS[name]
    found = predicted(**cells, software=software, global_batch=batch, tokens_per_s_per_gpu=str(speed))
    assert found.verdict == "ok"
    assert found.error is not None
    assert abs(found.error) < 0.15
    assert f"shape of the catalog's {cells['model'].lower()} (" in found.why
    assert "config.json" in found.why


def test_a_shape_nobody_states_is_named() -> None:
    found = predicted(**TRAY, **(SUPER | {"model": "DeepSeek-V9"}), software="NeMo/Megatron-Bridge 26.08")
    assert (found.verdict, found.step_s) == ("unsupported", None)
    assert found.why == "the shape of 'DeepSeek-V9' is not stated, and the catalog has no such model"
