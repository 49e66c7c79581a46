"""benchmarks/measure_steps.py: its models are those of the measured table, its file is one `validate` reads."""

import csv
import io
import sys
from pathlib import Path

import pytest

from shardwise.measured.validate.one_gpu import is_one_gpu, one_gpu_predictions
from shardwise.measured.validate.run import validate
from shardwise.spec.arch import model_from_shape
from shardwise.spec.arch.tensors import parameters
from truth import truth

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be measured")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import measure_steps  # noqa: E402
from _step_configs import COLUMNS, STATED, Config, config_of, configs, tiny  # noqa: E402
from _step_models import Decoder, model_flops  # noqa: E402


def count(config: Config) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in Decoder(config).parameters())


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_list_is_new_and_broad():
    every = configs()
    assert len(every) >= 24
    assert len({config.name for config in every}) == len(every)
    assert max(config.seq for config in every) == 32768
    assert sum(config.moe_experts > 0 for config in every) >= 4
    for wanted in ({"compiled": True}, {"recompute": "full"}, {"precision": "bf16-pure"}, {"glu": False}):
        assert sum(all(getattr(c, k) == v for k, v in wanted.items()) for c in every) >= 3
    for config in every:
        assert config.seq * config.micro_batch * config.moe_topk % max(config.moe_experts, 1) == 0


def test_no_configuration_is_in_the_measured_table():
    known = {tuple(row[c] for c in STATED[1:]) for row in rows_of(truth("h200_steps.csv"))}
    assert not known & {tuple(config.cells()[c] for c in STATED[1:]) for config in configs()}


def test_models_and_flops_are_those_of_the_measured_table():
    for row in rows_of(truth("h200_steps.csv")):
        config = config_of(row)
        assert count(config) == int(row["params"])
        rate = model_flops(config, count(config)) / float(row["step_ms"]) / 1e9
        assert rate == pytest.approx(float(row["tflops_causal"]), abs=0.1)


@pytest.mark.parametrize("config", configs(), ids=lambda config: config.name)
def test_the_planner_counts_the_same_parameters(config):
    experts = {"experts": config.moe_experts, "top_k": config.moe_topk} if config.moe_experts else {}
    model = model_from_shape(
        config.name, config.layers, config.hidden, config.heads, config.kv_heads, config.ffn, config.glu, config.vocab,
        tied=False, positions=config.seq, **experts,
    )  # fmt: skip
    assert parameters(model) == count(config)


def test_every_configuration_is_predicted_to_fit_and_to_be_short(tmp_path, capsys):
    assert measure_steps.main(["--list"]) == 0
    text = capsys.readouterr().out
    assert next(csv.reader(io.StringIO(text))) == list(COLUMNS)
    listed = tmp_path / "list.csv"
    listed.write_text(text)
    found = one_gpu_predictions(listed)
    assert len(found) == len(configs())
    for prediction in found:
        assert prediction.peak_bytes < 100 * 2**30
        assert prediction.step_s < 2


@pytest.mark.parametrize("name", ["gpt-125m", "moe-8-top2", "llama-1b-half-32k-recompute", "qwen-1.5b-accumulated"])
def test_a_tiny_run_is_a_table_that_validates(name, tmp_path, monkeypatch):
    monkeypatch.setattr(measure_steps, "LONG_ENOUGH_S", 0.05)
    path = tmp_path / "steps.csv"
    words = ["--device", "cpu", "--tiny", "--only", name, "--out", str(path)]
    assert measure_steps.main(words) == 0
    (row,) = rows_of(path)
    assert list(row) == list(COLUMNS)
    assert float(row["step_ms"]) > float(row["forward_ms"]) > 0
    assert is_one_gpu(tuple(row))
    assert validate(path)["rows"][0]["verdict"] == "ok"
    before = path.read_text()
    assert measure_steps.main(words) == 0
    assert path.read_text() == before


def test_experts_see_every_token_as_often_as_asked():
    config = tiny(next(config for config in configs() if config.name == "moe-64-top8"))
    torch.manual_seed(0)
    experts = Decoder(config).blocks[0].feed_forward
    x = torch.randn(2, config.seq, config.hidden)
    flat = x.flatten(0, 1)
    share = torch.topk(torch.softmax(experts.router(flat), dim=-1), config.moe_topk, dim=-1).values
    wanted = torch.zeros_like(flat)
    for token in range(len(flat)):
        for place in range(config.moe_topk):
            expert = (token * config.moe_topk + place) % config.moe_experts
            gate, up = (flat[token] @ experts.up[expert]).chunk(2)
            wanted[token] += share[token, place] * ((torch.nn.functional.silu(gate) * up) @ experts.down[expert])
    torch.testing.assert_close(experts(x).flatten(0, 1), wanted, rtol=1e-4, atol=1e-5)


def test_bad_words(capsys):
    with pytest.raises(SystemExit):
        measure_steps.main(["--only", "nothing"])
    assert "is unknown" in capsys.readouterr().err


def test_an_impossible_number_of_experts_is_refused(tmp_path):
    path = tmp_path / "bad.csv"
    config = {**configs()[-1].cells(), "moe_topk": "99", "step_ms": "1", "peak_alloc_gib": "1"}
    path.write_text(",".join(config) + "\n" + ",".join(config.values()) + "\n")
    with pytest.raises(ValueError, match="moe_topk is '99'"):
        validate(path)
