import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.arch.tensors import active_parameters, matmul_parameters, parameters
from shardwise.spec.arch.tuned import tuned
from shardwise.spec.model import Attention
from shardwise.spec.tuning import tuning_of
from shardwise.step.estimate.mfu import (
    attended_keys,
    attention_flops_per_token,
    conventions,
    recomputed_flops,
    training_flops,
    training_seconds,
    utilization,
)


def by_key(name: str, seq: int, recompute: str = "none") -> dict[str, float]:
    return {row.key: row.flops_per_token for row in conventions(model_of(name), seq, recompute)}


@pytest.mark.parametrize("name", ["megatron-1.7b", "megatron-145.6b", "megatron-1008b"])
def test_full_recompute_is_the_count_of_the_megatron_tables(name):
    model = model_of(name)
    layers, hidden, vocab, seq = model.layers, model.hidden, model.vocab, 2048
    published = 96 * layers * hidden**2 * (1 + seq / (6 * hidden) + vocab / (16 * layers * hidden))
    assert by_key(name, seq, "full")["hardware"] == pytest.approx(published, rel=1e-9)


def test_conventions_differ_by_what_they_say():
    model, seq = model_of("llama-3-8b"), 8192
    flops = by_key("llama-3-8b", seq)
    embedding = model.vocab * model.hidden
    norms = (2 * model.layers + 1) * model.hidden
    assert flops["6n_all"] - flops["6n_matmul"] == 6 * (embedding + norms)
    square = 12 * seq * model.hidden * model.layers
    assert flops["full_square"] - flops["6n_matmul"] == square
    assert flops["causal_half"] - flops["6n_matmul"] == square / 2
    assert flops["hardware"] == flops["full_square"]
    # The two conventions of the published tables lie 11 % apart for 8B at 8,192.
    assert 1 - flops["causal_half"] / flops["full_square"] == pytest.approx(0.11, abs=0.005)


def test_recompute_adds_forward_work_only_to_the_hardware_count():
    none, selective, full = (by_key("llama-3-8b", 8192, kind) for kind in ("none", "selective", "full"))
    for key in ("6n_all", "6n_matmul", "full_square", "causal_half"):
        assert none[key] == selective[key] == full[key]
    assert none["hardware"] < selective["hardware"] < full["hardware"] < 4 / 3 * none["hardware"]


def test_experts_count_only_when_active():
    model = model_of("mixtral-8x7b")
    assert by_key("mixtral-8x7b", 4096)["6n_all"] == 6 * active_parameters(model) < 6 * parameters(model) / 3


def test_windows_and_masks():
    whole = Attention(heads=8, kv_heads=8, head_dim=64)
    window = Attention(heads=8, kv_heads=8, head_dim=64, window=100)
    both_ways = Attention(heads=8, kv_heads=8, head_dim=64, causal=False)
    assert attended_keys(whole, 1000, causal_half=True) == 500
    assert attended_keys(both_ways, 1000, causal_half=True) == 1000
    assert attended_keys(window, 1000, causal_half=False) == 100
    exact = sum(min(i + 1, 100) for i in range(1000)) / 1000
    assert attended_keys(window, 1000, causal_half=True) == pytest.approx(exact, rel=0.01)
    assert attended_keys(window, 50, causal_half=True) == attended_keys(whole, 50, causal_half=True)


def test_latent_attention_counts_both_head_widths():
    model = model_of("deepseek-v3")
    # 128 heads, 192 wide for the scores and 128 for the values, in each of 61 layers.
    assert attention_flops_per_token(model, 4096, causal_half=False) == 61 * 2 * 4096 * 128 * (192 + 128)
    assert matmul_parameters(model) == pytest.approx(37e9, rel=0.03)


def test_time_and_utilization_are_inverse():
    flops = training_flops(1e12, 7e9)
    assert flops == 4.2e22
    assert utilization(flops, 512, 312e12, training_seconds(flops, 512, 312e12, 0.4)) == pytest.approx(0.4)


def test_bad_input_is_named():
    model = model_of("llama-3-8b")
    with pytest.raises(ValueError, match="seq: 0"):
        conventions(model, 0)
    with pytest.raises(ValueError, match="recompute: 'some' is unknown"):
        conventions(model, 8, "some")
    with pytest.raises(ValueError, match="0 GPUs"):
        utilization(1.0, 0, 1.0, 1.0)
    with pytest.raises(ValueError, match="utilization 0"):
        training_seconds(1.0, 1, 1.0, 0.0)


def test_layers_without_a_gradient_are_not_repeated() -> None:
    model = tuned(model_of("llama-3-8b"), tuning_of(None, "embeddings,first=16"))
    whole = recomputed_flops(model_of("llama-3-8b"), 4096, "full", causal_half=True)
    assert recomputed_flops(model, 4096, "full", causal_half=True) == pytest.approx(whole / 2, rel=1e-12)
