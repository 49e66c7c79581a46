"""What the fit of the kernels writes: its own table of a GPU's file, and nothing else of it."""

import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "evidence"))
fit_kernels = pytest.importorskip("fit_kernels", reason="scipy is not installed: nothing can be fitted")


def test_the_data_sheet_stays_as_it_is(tmp_path, monkeypatch):
    chip = next(chip for chip in fit_kernels.CHIPS if chip.name == "a100-80")
    shipped = (fit_kernels.GPUS / "a100-80.toml").read_text()
    before = tomllib.loads(shipped)
    file = tmp_path / "a100-80.toml"
    file.write_text(shipped)
    monkeypatch.setattr(fit_kernels, "GPUS", tmp_path)
    gemm = before["kernels"]["gemm"] | {"bf16": {**before["kernels"]["gemm"]["bf16"], "e_max": 0.5}}
    fit_kernels.write(chip, gemm, fit_kernels.ATTENTION[chip.name], before["kernels"]["kernel_floor_s"])
    after = tomllib.loads(file.read_text())
    assert file.read_text().startswith(shipped[: shipped.index("[kernels]")])
    assert after.keys() == before.keys()
    assert after["kernels"]["gemm"] == gemm
    changed = {key for key in before["kernels"] if before["kernels"][key] != after["kernels"].get(key)}
    assert changed - {"date"} == {"gemm"}
