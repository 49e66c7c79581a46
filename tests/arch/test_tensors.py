"""Tensor lists: names, shapes and how they are cut."""

import pytest

from shardwise.spec.arch import model_from_config, model_names, model_of
from shardwise.spec.arch.tensors import (
    Tensor,
    active_parameters,
    embedding_tensors,
    head_tensors,
    layer_tensors,
    matmul_parameters,
    mtp_tensors,
    parameters,
)
from shardwise.spec.model import Model

LAYER = "model.layers.{i}."


def by_name(model: Model, kind: int = 0) -> dict[str, Tensor]:
    return {t.name: t for t in layer_tensors(model, kind)}


def test_llama_layer_is_what_the_checkpoint_holds() -> None:
    found = {name: (t.shape, t.split) for name, t in by_name(model_of("llama-3-8b")).items()}
    assert found == {
        LAYER + "input_layernorm.weight": ((4096,), "none"),
        LAYER + "post_attention_layernorm.weight": ((4096,), "none"),
        LAYER + "self_attn.q_proj.weight": ((4096, 4096), "column"),
        LAYER + "self_attn.k_proj.weight": ((1024, 4096), "column"),
        LAYER + "self_attn.v_proj.weight": ((1024, 4096), "column"),
        LAYER + "self_attn.o_proj.weight": ((4096, 4096), "row"),
        LAYER + "mlp.gate_proj.weight": ((14336, 4096), "column"),
        LAYER + "mlp.up_proj.weight": ((14336, 4096), "column"),
        LAYER + "mlp.down_proj.weight": ((4096, 14336), "row"),
    }


def test_keys_and_values_say_how_far_they_can_be_cut() -> None:
    tensors = by_name(model_of("llama-3-8b"))
    assert tensors[LAYER + "self_attn.k_proj.weight"].pieces == 8
    assert tensors[LAYER + "self_attn.q_proj.weight"].pieces == 32
    assert tensors[LAYER + "mlp.up_proj.weight"].pieces == 0


def test_bias_after_a_row_split_is_whole_on_every_rank() -> None:
    tensors = by_name(model_of("gpt2"))
    assert tensors["transformer.h.{i}.mlp.c_fc.bias"].split == "column"
    assert tensors["transformer.h.{i}.mlp.c_proj.bias"].split == "none"
    assert tensors["transformer.h.{i}.attn.c_attn.weight[q]"].shape == (768, 768)


def test_latent_attention_of_deepseek_v3() -> None:
    tensors = by_name(model_of("deepseek-v3"))
    shapes = {name.removeprefix(LAYER + "self_attn."): t.shape for name, t in tensors.items() if "self_attn" in name}
    assert shapes == {
        "q_a_proj.weight": (1536, 7168),
        "q_a_layernorm.weight": (1536,),
        "q_b_proj.weight": (24576, 1536),
        "kv_a_proj_with_mqa.weight": (576, 7168),
        "kv_a_layernorm.weight": (512,),
        "kv_b_proj.weight": (32768, 512),
        "o_proj.weight": (7168, 16384),
    }


def test_experts_are_stacked_and_cut_by_expert_parallelism() -> None:
    tensors = by_name(model_of("qwen3-30b-a3b"))
    gate = tensors[LAYER + "mlp.experts.{e}.gate_proj.weight"]
    assert (gate.shape, gate.split) == ((128, 768, 2048), "expert")
    assert tensors[LAYER + "mlp.gate.weight"].split == "none"


def test_prediction_layers_continue_the_numbering_and_share_the_tables() -> None:
    tensors = mtp_tensors(model_of("deepseek-v3"))
    assert {t.part for t in tensors} == {"mtp"}
    assert all(t.name.startswith("model.layers.61.") for t in tensors)
    assert not any("embed" in t.name or "lm_head" in t.name for t in tensors)


def test_tied_table_is_counted_once_but_multiplied() -> None:
    model = model_of("llama-3.2-1b")
    assert [t.name for t in head_tensors(model)] == ["model.norm.weight"]
    table = model.vocab * model.hidden
    assert [t.size for t in embedding_tensors(model)] == [table]
    assert matmul_parameters(model) == parameters(model) - (2 * model.layers + 1) * model.hidden


def test_only_looked_up_tables_leave_the_active_count() -> None:
    model = model_of("gpt2")
    positions = 1024 * 768
    assert active_parameters(model) - active_parameters(model, embedding=False) == positions


def test_pooler_is_no_product_of_every_token() -> None:
    model = model_of("bert-large")
    idle = {t.name for t in head_tensors(model) if len(t.shape) == 2 and not t.product}
    assert idle == {"bert.pooler.dense.weight", "cls.seq_relationship.weight"}


def test_windows_follow_the_family() -> None:
    def windows(name: str) -> list[int]:
        model = model_of(name)
        kinds = [model.kinds[k].attention for k in model.pattern]
        return [a.window for a in kinds if a is not None]

    assert windows("gemma-3-27b")[:7] == [1024] * 5 + [0, 1024]
    assert windows("gpt-oss-20b")[:4] == [128, 0, 128, 0]
    assert windows("gemma-2-9b")[:2] == [4096, 0]
    assert windows("llama-4-maverick")[:4] == [8192, 8192, 8192, 0]


def test_dense_and_expert_layers_take_their_places() -> None:
    def sparse(name: str) -> list[bool]:
        model = model_of(name)
        return [model.kinds[k].experts is not None for k in model.pattern]

    assert sparse("deepseek-v3") == [False] * 3 + [True] * 58
    assert sparse("llama-4-maverick") == [False, True] * 24
    assert all(sparse("mixtral-8x7b"))


def test_perceptron_with_biases() -> None:
    model = model_from_config({"model_type": "mlp", "layer_sizes": [784, 128, 10]}, "with-biases")
    assert parameters(model) == 101_770


@pytest.mark.parametrize("name", model_names())
def test_every_tensor_is_well_formed(name: str) -> None:
    model = model_of(name)
    ends = embedding_tensors(model) + head_tensors(model) + mtp_tensors(model)
    kinds = [layer_tensors(model, kind) for kind in range(len(model.kinds))]
    for tensor in [*ends, *(t for tensors in kinds for t in tensors)]:
        assert tensor.part in {"embedding", "layer", "head", "mtp"}
        assert tensor.split in {"vocab", "column", "row", "expert", "none"}
        assert all(side >= 1 for side in tensor.shape)
    for tensors in kinds:
        assert len({t.name for t in tensors}) == len(tensors)
