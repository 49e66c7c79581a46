"""The sizes of a model under the names that configurations give them."""

from collections.abc import Mapping
from typing import Any

from shardwise.spec.arch._fields import MOST_LAYERS, ConfigFields

NAMES: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model", "embed_dim", "dim", "model_dim", "n_embed", "hidden_dim", "width",
               "emb_dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers", "decoder_layers",
               "encoder_layers", "depth", "layers", "num_blocks"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "decoder_attention_heads",
              "encoder_attention_heads", "num_query_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "num_attention_groups", "multi_query_group_num",
                 "n_head_kv"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels", "d_kv", "dim_head", "head_size"),
    "ffn": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "decoder_ffn_dim",
            "encoder_ffn_dim", "dff", "dim_ff", "d_inner", "feed_forward_size", "mlp_hidden_size", "intermediate_dim"),
    "vocab": ("vocab_size", "n_vocab", "padded_vocab_size", "tgt_vocab_size"),
    "positions": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length",
                  "context_length", "max_sequence_length", "max_target_positions", "max_decoder_position_embeddings"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts"),
    "top_k": ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k", "top_k_experts",
              "experts_per_token", "num_selected_experts"),
    "expert_ffn": ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size", "expert_intermediate_size",
                   "moe_expert_ffn_dim"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "shared_ffn": ("shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size",
                   "moe_shared_intermediate_size"),
    "window": ("sliding_window", "sliding_window_size", "window_size", "attention_window_size", "local_attention",
               "attention_chunk_size"),
}  # fmt: skip


def size(fields: ConfigFields, what: str, default: int | None = None, *, least: int = 1) -> int:
    """A size under the first of its names that is there; a missing one without a default is an error that names it."""
    most = {"layers": MOST_LAYERS, "positions": 10**8, "window": 10**8}.get(what)
    return fields.whole(*NAMES[what], default=default, least=least, most=most)


def given(fields: ConfigFields, what: str) -> bool:
    return any(fields.has(name) for name in NAMES[what])


SHARES_KEYS = "_shares_keys"
"""of a layer's fields: its keys and values are those of an earlier layer"""
OF_WINDOW = "swa_"
"""before the fields of layers with a window (sliding-window attention)"""
PICKS_KEYS = "_picks_keys"
"""of a layer's fields: it has an indexer of its own, where it has any"""
CROSSES = "_crosses"
"""of a layer's fields: it attends to what a tower made in place of its own tokens"""
SEEN = "_seen"
"""positions that a tower makes for each sequence"""
TILE = "_tile"
"""positions of one tile of an image"""


def at_layer(config: Mapping[str, Any], index: int, layers: int, *, near: bool = False) -> dict[str, Any]:
    """The configuration as one layer sees it: sizes listed for each layer, `per_layer_config` of transformers, and with
    a window (`near`) the sizes named after it."""
    own = {
        name: value[index] if isinstance(value, list) and len(value) == layers and name in _LISTED else value
        for name, value in config.items()
    }
    for each, name in _PER_LAYER.items():
        if isinstance(config.get(each), list) and len(config[each]) == layers:
            own[name] = config[each][index]
    if near:
        own |= {name.removeprefix(OF_WINDOW): config[name] for name in config if name.startswith(OF_WINDOW)}
    shared = config.get("num_kv_shared_layers")
    own[SHARES_KEYS] = isinstance(shared, int) and index >= layers - shared
    picks = config.get("indexer_types")
    own[PICKS_KEYS] = not isinstance(picks, list) or len(picks) != layers or picks[index] == "full"
    own[CROSSES] = index in (config.get("cross_attention_layers") or ()) and bool(config.get(SEEN))
    changed = config.get("per_layer_config")
    if isinstance(changed, Mapping):
        for key, values in changed.items():
            if isinstance(values, Mapping) and key.isdecimal() and int(key) == index:
                own.update(values)
    return own


_LISTED = frozenset(name for names in NAMES.values() for name in names)
_PER_LAYER = {
    "num_attention_heads_per_layer": "num_attention_heads",
    "num_key_value_heads_per_layer": "num_key_value_heads",
}
