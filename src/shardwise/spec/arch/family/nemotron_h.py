"""Nemotron-H, Nemotron Nano 2 and Nemotron 3: every layer is one mixer, a Mamba-2 scan, attention without positions, a
feed-forward of squared ReLU, or experts (from Super on in a latent space)."""

from collections.abc import Mapping, Sequence

from shardwise.spec.arch._family import Family, assemble, experts
from shardwise.spec.arch._fields import MOST_LAYERS, ConfigFields
from shardwise.spec.model import Attention, FeedForward, Layer, Mamba, Model

WORDS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
RENAMED = {"linear_attention": "mamba", "full_attention": "attention"}
"""as transformers 5 writes them"""
_LAYER = "backbone.layers.{i}."
_MIXER = _LAYER + "mixer."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    blocks = _blocks(fields, "hybrid_override_pattern", "layers_block_type")
    if fields.has("num_hidden_layers") and fields.layers() != len(blocks):
        raise fields.refuse("num_hidden_layers", f"{len(blocks)}, as many as hybrid_override_pattern has")
    extra = fields.whole("mtp_num_layers", "num_nextn_predict_layers", default=0, least=0, most=64)
    ahead = _blocks(fields, "mtp_hybrid_override_pattern", "mtp_layers_block_type") if extra else ()
    made = {word: _layer(fields, word) for word in dict.fromkeys((*blocks, *ahead))}
    kinds = list(dict.fromkeys(made[word] for word in blocks))
    if any(made[word] not in kinds for word in ahead):
        raise fields.refuse("mtp_hybrid_override_pattern", "only letters that hybrid_override_pattern has")
    return assemble(
        fields,
        name,
        "nemotron_h",
        [made[word] for word in blocks],
        rotary=False,
        mtp_layers=extra,
        mtp_pattern=tuple(kinds.index(made[word]) for word in ahead),
        mtp_repeated=extra > 1 and fields.flag("mtp_use_repeated_layer", False),
    )


def _blocks(fields: ConfigFields, letters: str, words: str) -> Sequence[str]:
    """A word for each layer, from one letter each or from a list."""
    if fields.has(words):
        choices = (*WORDS.values(), *RENAMED)
        found = fields.texts(words, default=None, choices=choices, least=1, most=MOST_LAYERS)
        return [RENAMED.get(word, word) for word in found]
    pattern = fields.text(letters, default="", longest=MOST_LAYERS)
    if not 1 <= len(pattern) <= MOST_LAYERS or set(pattern) - set(WORDS):
        raise fields.refuse(letters, f"a letter for each layer out of {' '.join(WORDS)} ({', '.join(WORDS.values())})")
    return [WORDS[letter] for letter in pattern]


def _layer(fields: ConfigFields, word: str) -> Layer:
    if word == "mamba":
        return Layer(mamba=_mamba(fields), norms=1)
    if word == "attention":
        return Layer(attention=_attention(fields), norms=1)
    bias = fields.flag("mlp_bias", False)
    if word == "mlp":
        width = fields.whole("intermediate_size")
        return Layer(feed_forward=FeedForward(width=width, glu=False, bias=bias), norms=1)
    routed = experts(
        fields,
        "n_routed_experts",
        "moe_intermediate_size",
        glu=False,
        bias=bias,
        shared_width=fields.whole("moe_shared_expert_intermediate_size", default=0),
        # balanced by a learned offset on the scores
        router_bias=True,
        latent=fields.whole("moe_latent_size", default=0),
    )
    return Layer(experts=routed, norms=1)


def _mamba(fields: ConfigFields) -> Mamba:
    return Mamba(
        heads=fields.whole("mamba_num_heads"),
        head_dim=fields.whole("mamba_head_dim"),
        state=fields.whole("ssm_state_size"),
        groups=fields.whole("n_groups", default=8),
        conv=fields.whole("conv_kernel", default=4),
        chunk=fields.whole("chunk_size", default=128),
        bias=fields.flag("use_bias", False),
        conv_bias=fields.flag("use_conv_bias", True),
    )


def _attention(fields: ConfigFields) -> Attention:
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    width = fields.whole("head_dim", "attention_head_dim", default=0)
    bias = fields.flag("attention_bias", False)
    return Attention(
        heads=heads,
        kv_heads=fields.whole("num_key_value_heads", default=heads),
        head_dim=width or fields.divided("hidden_size", hidden, "num_attention_heads", heads),
        bias_qkv=bias,
        bias_out=bias,
    )


FAMILY = Family(
    name="nemotron_h",
    model_types=("nemotron_h",),
    read=read,
    names={
        "token": "backbone.embeddings",
        "norm.0": _LAYER + "norm",
        "mamba": _LAYER + "mixer",
        "mamba.in": _MIXER + "in_proj",
        "mamba.conv": _MIXER + "conv1d",
        "mamba.norm": _MIXER + "norm",
        "mamba.out": _MIXER + "out_proj",
        "q": _MIXER + "q_proj",
        "k": _MIXER + "k_proj",
        "v": _MIXER + "v_proj",
        "o": _MIXER + "o_proj",
        "up": _MIXER + "up_proj",
        "down": _MIXER + "down_proj",
        "router": _MIXER + "gate",
        "expert.up": _MIXER + "experts.{e}.up_proj",
        "expert.down": _MIXER + "experts.{e}.down_proj",
        "latent.down": _MIXER + "fc1_latent_proj",
        "latent.up": _MIXER + "fc2_latent_proj",
        "shared.up": _MIXER + "shared_experts.up_proj",
        "shared.down": _MIXER + "shared_experts.down_proj",
        "final_norm": "backbone.norm_f",
    },
)
