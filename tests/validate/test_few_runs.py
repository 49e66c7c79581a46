"""`validate --learn`: each run from a few others of its group, drawn by the seed."""

import csv
import json

import pytest

from shardwise.measured.validate.run import validate
from shardwise.show.cli import main

ROW = {
    "source": "bench", "model": "Llama-3-8B", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8",
    "ffn": "14336", "glu": "1", "vocab": "128256", "seq": "8192", "gpu": "H100-80GB-SXM", "gpus": "8",
    "gpus_per_node": "8", "dtype": "bf16", "tp": "2", "sp": "1", "pp": "1", "vpp": "1", "cp": "1", "dp": "4",
    "zero_stage_or_fsdp": "1", "micro_batch": "1", "global_batch": "128", "recompute": "none", "flash_attention": "1",
    "software": "Megatron-Core", "tokens_per_s_per_gpu": "", "peak_mem_gb": "60",
}  # fmt: skip
LAYOUTS = [{"tp": "1", "dp": "8"}, {}, {"tp": "4", "dp": "2"}, {"pp": "2", "dp": "2"}, {"global_batch": "256"}]
SLOWER = 1.4


@pytest.fixture
def table(tmp_path):
    """Five layouts of one job, all of which take 1.4 times what is predicted, and one run of another model."""

    def written(rows):
        path = tmp_path / "runs.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(ROW))
            writer.writeheader()
            writer.writerows(rows)
        return path

    rows = [ROW | layout for layout in LAYOUTS] + [ROW | {"model": "Llama-3-8B again", "tokens_per_s_per_gpu": "9000"}]
    rates = [row["tokens_per_s_per_gpu"] for row in validate(written(rows))["rows"]]
    return written([row | {"tokens_per_s_per_gpu": rate / SLOWER} for row, rate in zip(rows, rates, strict=True)])


def test_each_run_is_predicted_from_others_of_its_group(table):
    found = validate(table, learn=2, seed=3)
    *group, alone = found["rows"]
    assert alone["learned_from"] is None
    for row in group:
        assert len(row["learned_from"]) == 2
        assert row["row"] not in row["learned_from"]
        assert set(row["learned_from"]) <= {0, 1, 2, 3, 4}
        assert row["step_low_s"] < row["step_s"] < row["step_high_s"]
    every = found["summary"]["all"]
    assert set(every) == {"k", "n", "mape", "bias", "coverage", "width", "regret"}
    assert (every["k"], every["n"], every["coverage"]) == (2, 5, 1.0)
    assert list(found["summary"]) == ["all", "bench"]


def test_none_is_the_blind_prediction_and_each_run_brings_the_error_down(table):
    blind = validate(table)["rows"]
    none = validate(table, learn=0)
    assert [row["step_s"] for row in none["rows"]] == [row["step_s"] for row in blind]
    assert all(row["learned_from"] == () for row in none["rows"])
    errors = [validate(table, learn=number)["summary"]["all"]["mape"] for number in (0, 1, 3)]
    assert errors[0] > errors[1] > errors[2]
    widths = [validate(table, learn=number)["summary"]["all"]["width"] for number in (0, 3)]
    assert widths[0] > widths[1]


def test_the_seed_draws(table):
    drawn = [[row["learned_from"] for row in validate(table, learn=1, seed=seed)["rows"]] for seed in (1, 1, 2, 3, 4)]
    assert drawn[0] == drawn[1]
    assert any(drawn[0] != other for other in drawn[2:])


def test_the_command_writes_the_document(table, tmp_path):
    out = tmp_path / "out.json"
    assert main(["validate", "--data", str(table), "--learn", "1", "--seed", "2", "--json", str(out)]) == 0
    assert json.loads(out.read_text())["summary"]["all"]["k"] == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [(["--learn", "-1"], "learn"), (["--learn", "1", "--seed", "-1"], "seed"), (["--learn", "9"], "learn")],
)
def test_a_wrong_number_is_named(table, capsys, wrong, field):
    assert main(["validate", "--data", str(table), *wrong]) == 2
    assert f"{field}: " in capsys.readouterr().err
