"""GPT-2, GPT-3 and the Megatron GPT models: LayerNorm, biases, learned positions, dropout, tied head."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import Attention, FeedForward, Layer, Model

_BLOCK = "transformer.h.{i}."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    hidden, heads = fields.whole("n_embd"), fields.whole("n_head")
    width = fields.divided("n_embd", hidden, "n_head", heads)
    layer = Layer(
        attention=Attention(heads=heads, kv_heads=heads, head_dim=width, bias_qkv=True, bias_out=True),
        feed_forward=FeedForward(width=fields.whole("n_inner", default=4 * hidden), glu=False, bias=True),
    )
    return assemble(
        fields,
        name,
        "gpt2",
        [layer] * fields.layers("n_layer"),
        hidden=hidden,
        norm="layer",
        norm_bias=True,
        tied=fields.flag("tie_word_embeddings", True),
        positions=fields.whole("n_positions", "n_ctx", default=1024),
        rotary=False,
        dropout=fields.number("resid_pdrop", 0.1) > 0,
    )


FAMILY = Family(
    name="gpt2",
    model_types=("gpt2",),
    read=read,
    names={
        "token": "transformer.wte",
        "position": "transformer.wpe",
        "q": _BLOCK + "attn.c_attn|q",
        "k": _BLOCK + "attn.c_attn|k",
        "v": _BLOCK + "attn.c_attn|v",
        "o": _BLOCK + "attn.c_proj",
        "norm.0": _BLOCK + "ln_1",
        "norm.1": _BLOCK + "ln_2",
        "up": _BLOCK + "mlp.c_fc",
        "down": _BLOCK + "mlp.c_proj",
        "final_norm": "transformer.ln_f",
    },
)
