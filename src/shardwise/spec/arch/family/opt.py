"""OPT: GPT-3 in Fairseq form, whose position table starts at row 2."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble, attention
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model

_OFFSET = 2
_DECODER = "model.decoder."
_BLOCK = _DECODER + "layers.{i}."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    bias, hidden = fields.flag("enable_bias", True), fields.whole("hidden_size")
    layer = Layer(
        attention=attention(fields, bias_qkv=bias, bias_out=bias),
        feed_forward=FeedForward(width=fields.whole("ffn_dim"), glu=False, bias=bias),
    )
    width = fields.whole("word_embed_proj_dim", default=hidden)
    return assemble(
        fields,
        name,
        "opt",
        [layer] * fields.layers(),
        norm="layer",
        norm_bias=fields.flag("layer_norm_elementwise_affine", True),
        tied=fields.flag("tie_word_embeddings", True),
        positions=fields.whole("max_position_embeddings", default=2048) + _OFFSET,
        rotary=False,
        dropout=fields.number("dropout", 0.1) > 0,
        final_norm=fields.flag("do_layer_norm_before", True),
        embedding_width=0 if width == hidden else width,
    )


FAMILY = Family(
    name="opt",
    model_types=("opt",),
    read=read,
    names={
        "token": _DECODER + "embed_tokens",
        "position": _DECODER + "embed_positions",
        "project_in": _DECODER + "project_in",
        "project_out": _DECODER + "project_out",
        "q": _BLOCK + "self_attn.q_proj",
        "k": _BLOCK + "self_attn.k_proj",
        "v": _BLOCK + "self_attn.v_proj",
        "o": _BLOCK + "self_attn.out_proj",
        "norm.0": _BLOCK + "self_attn_layer_norm",
        "norm.1": _BLOCK + "final_layer_norm",
        "up": _BLOCK + "fc1",
        "down": _BLOCK + "fc2",
        "final_norm": _DECODER + "final_layer_norm",
    },
)
