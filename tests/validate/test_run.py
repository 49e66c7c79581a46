"""The validation document: its fixed keys, its scores on hand-made rows, its two further file formats."""

import csv
import json

import numpy as np
import pytest

from shardwise.measured.validate.failed import fit_balanced_accuracy, read_failed
from shardwise.measured.validate.one_gpu import is_one_gpu
from shardwise.measured.validate.predict import Prediction, predict
from shardwise.measured.validate.run import validate
from shardwise.measured.validate.score import metrics
from shardwise.measured.validate.table import MeasuredRow, header, read_table
from truth import truth

COLUMNS = [
    "source", "model", "layers", "hidden", "heads", "kv_heads", "ffn", "glu", "vocab", "seq", "gpu", "gpus",
    "gpus_per_node", "dtype", "tp", "sp", "pp", "vpp", "cp", "dp", "zero_stage_or_fsdp", "micro_batch", "global_batch",
    "recompute", "flash_attention", "software", "tokens_per_s_per_gpu", "step_seconds", "peak_mem_gb", "notes",
]  # fmt: skip
ROW = {
    "source": "bench", "model": "Llama-3-8B", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8",
    "ffn": "14336", "glu": "1", "vocab": "128256", "seq": "8192", "gpu": "H100-80GB-SXM", "gpus": "8",
    "gpus_per_node": "8", "dtype": "bf16", "tp": "2", "sp": "1", "pp": "1", "vpp": "1", "cp": "1", "dp": "4",
    "zero_stage_or_fsdp": "1", "micro_batch": "1", "global_batch": "128", "recompute": "none", "flash_attention": "1",
    "software": "Megatron-Core", "tokens_per_s_per_gpu": "11000", "peak_mem_gb": "60",
}  # fmt: skip
ROW_KEYS = {
    "row", "source", "verdict", "why", "step_s", "tokens_per_s_per_gpu", "peak_bytes", "step_low_s", "step_high_s",
    "evidence", "stacks_s", "measured_tokens_per_s_per_gpu", "error",
}  # fmt: skip
SUMMARY_KEYS = {
    "n", "supported", "mape", "median_ape", "bias", "within_10", "within_20", "spearman", "memory_mape", "regret",
    "coverage", "band_width",
}  # fmt: skip


def table(path, rows, columns=COLUMNS):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_contract(tmp_path):
    rows = [
        ROW,
        ROW | {"model": "unheard-of", "hidden": "", "heads": "", "layers": ""},
        ROW | {"source": "other", "tp": "1", "dp": "8", "micro_batch": "4"},
        ROW | {"tp": "3"},
        ROW | {"software": "", "micro_batch": "", "recompute": "", "zero_stage_or_fsdp": "", "dp": "", "vpp": ""},
    ]
    found = validate(table(tmp_path / "runs.csv", rows))
    assert list(found) == ["rows", "summary"]
    assert [set(row) for row in found["rows"]] == [ROW_KEYS] * 5
    assert [row["row"] for row in found["rows"]] == [0, 1, 2, 3, 4]
    assert [row["verdict"] for row in found["rows"]] == ["ok", "unsupported", "oom", "illegal", "ok"]
    assert {"all", "bench", "other"} <= set(found["summary"])
    over_all = {"coverage_sources", "mape_sources"}
    assert all(set(scores) - over_all == SUMMARY_KEYS for scores in found["summary"].values())
    assert over_all < set(found["summary"]["all"])
    first, last = found["rows"][0], found["rows"][4]
    assert first["step_low_s"] < first["step_s"] < first["step_high_s"]
    assert "software '(not stated)' is not known; taken as generic" in last["why"]
    assert "is not known" in last["evidence"]
    assert "is not known" not in first["evidence"]
    assert (found["summary"]["all"]["n"], found["summary"]["all"]["supported"]) == (5, 3)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_what_a_row_leaves_out_is_assumed_and_said(tmp_path):
    row = validate(table(tmp_path / "runs.csv", [ROW | {"micro_batch": "", "dp": ""}]))["rows"][0]
    assert row["verdict"] == "ok"
    assert "micro_batch not published: best of" in row["why"]


def test_recomputation_that_a_source_s_times_rule_out_is_not_counted(tmp_path):
    full = ROW | {"recompute": "full"}
    rows = [full, full | {"source": "vTrain-single"}, full | {"source": "vTrain-single", "recompute": "none"}]
    stated, read, none = predict(read_table(table(tmp_path / "runs.csv", rows)))
    assert (stated.policy.recompute, read.policy.recompute) == ("full", "none")
    assert "recompute=none (the source's times rule out what its table states)" in read.why
    assert read.step_s == none.step_s < stated.step_s
    assert "rule out" not in stated.why + none.why


def test_expert_tensor_parallelism_and_attention_are_chosen_where_no_column_says(tmp_path):
    grok = ROW | {
        "model": "Grok-1", "layers": "64", "hidden": "6144", "gpu": "GB200", "gpus": "128", "gpus_per_node": "4",
        "tp": "4", "dp": "32", "ep": "8", "global_batch": "256", "recompute": "",
        "software": "NeMo (dgxc v25.05.05)",
    }  # fmt: skip
    path = table(tmp_path / "t.csv", [grok], [*COLUMNS, "ep"])
    found = predict(read_table(path))[0]
    assert "etp not published: best of 1, 4" in found.why
    assert (found.policy.etp, found.policy.recompute) == (4, "none"), "whole experts leave no room for activations"
    older = ROW | {"flash_attention": "", "software": "NeMo-Megatron 23.05"}
    rows = read_table(table(tmp_path / "u.csv", [older, older | {"flash_attention": "1"}]))
    assert [p.policy.attention for p in predict(rows)] == ["plain", "flash"]


def test_step_and_throughput_agree(tmp_path):
    row = validate(table(tmp_path / "runs.csv", [ROW]))["rows"][0]
    assert row["tokens_per_s_per_gpu"] * row["step_s"] * 8 == pytest.approx(128 * 8192)
    assert row["measured_tokens_per_s_per_gpu"] == 11000


def prediction(predicted, measured, verdict="ok", **text):
    cells = {"source": "s", "model": "m", "gpu": "g", "gpus": "8", "seq": "1", "global_batch": "1", **text}
    row = MeasuredRow(row=0, text=cells | {"tokens_per_s_per_gpu": str(measured)})
    return Prediction(row, verdict, "", step_s=1.0, tokens_per_s_per_gpu=predicted, peak_bytes=2.0**30)


def test_regret_is_the_share_of_the_best_the_choice_reaches():
    good = [prediction(p, m) for p, m in ((4, 100), (3, 90), (2, 50), (1, 10))]
    assert metrics(good)["regret"] == 1
    bad = [prediction(p, m) for p, m in ((4, 80), (3, 100), (2, 50), (1, 10))]
    assert metrics(bad)["regret"] == pytest.approx(0.8)
    assert metrics(good[:3])["regret"] is None
    other = [prediction(p, m, model="x") for p, m in ((4, 60), (3, 100), (2, 50), (1, 10))]
    assert metrics(bad + other)["regret"] == pytest.approx(0.7)


def test_spearman_on_hand_made_rows():
    assert metrics([prediction(p, m) for p, m in ((1, 10), (2, 20), (3, 40))])["spearman"] == pytest.approx(1)
    assert metrics([prediction(p, m) for p, m in ((1, 40), (2, 20), (3, 10))])["spearman"] == pytest.approx(-1)
    ranks = [(1, 10), (2, 30), (3, 20), (4, 40)]
    assert metrics([prediction(p, m) for p, m in ranks])["spearman"] == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert metrics([prediction(1, 1), prediction(2, 2)])["spearman"] is None


def test_memory_error_is_in_gib():
    assert metrics([prediction(1, 1, peak_mem_gb="2")])["memory_mape"] == pytest.approx(0.5)


def test_fit_balanced_accuracy():
    ran = [prediction(1, 1, v) for v in ("ok", "ok", "ok", "oom", "unsupported")]
    failed = [prediction(1, 1, v) for v in ("oom", "ok", "illegal", "ok")]
    assert fit_balanced_accuracy(ran, failed) == pytest.approx((0.75 + 0.5) / 2)
    assert fit_balanced_accuracy(ran, []) is None


def test_failed_file_is_scored_with_the_runs(tmp_path):
    columns = ["model", "gpus", "dp", "tp", "pp", "micro_batch", "grad_accum", "global_batch", "zero_stage"]
    small = dict(zip(columns, ["Nanotron-1B", 8, 8, 1, 1, 1, 4, 32, 1], strict=True))
    large = dict(zip(columns, ["Nanotron-80B", 8, 8, 1, 1, 1, 4, 32, 0], strict=True))
    failed = table(tmp_path / "failed.csv", [small, large], columns)
    assert [row.word("zero_stage_or_fsdp") for row in read_failed(failed)] == ["1", "0"]
    found = validate(table(tmp_path / "runs.csv", [ROW]), failed=failed)
    assert found["summary"]["all"]["fit_balanced_accuracy"] == pytest.approx((1 + 0.5) / 2)
    assert "fit_balanced_accuracy" not in found["summary"]["bench"]


ONE_GPU = {
    "name": "tiny", "layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192, "glu": 1, "vocab": 128256,
    "seq": 2048, "micro_batch": 4, "accum": 1, "recompute": "none", "precision": "autocast", "compiled": 0,
    "step_ms": 155, "peak_alloc_gib": 43.2,
}  # fmt: skip


def one_gpu(path, *changes):
    return validate(table(path, [ONE_GPU | change for change in changes], list(ONE_GPU)))


def test_one_gpu_file_is_recognised_by_its_header(tmp_path):
    found = one_gpu(tmp_path / "steps.csv", {}, {"accum": 4}, {"compiled": 1}, {"precision": "bf16-pure"})
    assert is_one_gpu(header(tmp_path / "steps.csv"))
    assert not is_one_gpu(tuple(COLUMNS))
    base, more, compiled, pure = found["rows"]
    assert set(base) == ROW_KEYS
    assert base["measured_tokens_per_s_per_gpu"] == pytest.approx(4 * 2048 / 0.155)
    assert 3 * base["step_s"] < more["step_s"] < 4 * base["step_s"]
    assert more["peak_bytes"] - base["peak_bytes"] > 2**30
    assert compiled["step_s"] < base["step_s"]
    assert pure["peak_bytes"] < base["peak_bytes"]


@pytest.mark.parametrize("change", [{"layers": ""}, {"seq": "long"}, {"recompute": "half"}, {"precision": "fp3"}])
def test_one_gpu_bad_cells(tmp_path, change):
    with pytest.raises(ValueError, match=next(iter(change))):
        one_gpu(tmp_path / "steps.csv", change)


def test_one_gpu_truth():
    """A guard against regressions, not a test of skill: two settings of the stacks were fitted on these ten rows."""
    found = validate(truth("h200_steps.csv"))["summary"]["all"]
    assert found["supported"] == found["n"]
    assert found["mape"] < 0.06
    assert found["memory_mape"] < 0.04


def test_published_runs():
    found = validate(truth("steps.csv"), failed=truth("nanotron_failed.csv"))
    scores = found["summary"]["all"]
    assert len(found["rows"]) == 2098
    assert scores["supported"] > 0.9 * scores["n"]
    assert scores["mape"] < 0.25
    assert scores["spearman"] > 0.9
    assert scores["regret"] > 0.8
    assert scores["fit_balanced_accuracy"] > 0.75
    errors = [abs(row["error"]) for row in found["rows"] if row["error"] is not None]
    assert found["summary"]["unfiltered"]["mape"] == pytest.approx(np.mean(errors))
