"""DeepSeek-V4: compressed attention, hyper-connections, experts in every layer, a prediction layer."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from shardwise.spec.arch._family import Family, assemble, experts
from shardwise.spec.arch._fields import MOST_LAYERS, ConfigFields
from shardwise.spec.model import Attention, CompressedAttention, Experts, Layer, Model

RATIOS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
"""tokens a pooled vector stands for where the config does not say"""
SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
ROUTERS = ("hash_moe", "moe")


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    count = fields.layers()
    hashed = _hashed(fields, count)
    # a hashed layer looks its experts up: it has no offsets that balance them
    looked_up, learned = _routed(fields, router_bias=False), _routed(fields, router_bias=True)
    layers = [
        Layer(attention=_attention(fields, word), experts=looked_up if index < hashed else learned)
        for index, word in enumerate(_mixers(fields, count))
    ]
    extra = fields.whole("num_nextn_predict_layers", default=0, least=0, most=64)
    last = Layer(attention=_attention(fields, "sliding_attention"), experts=learned)
    model = assemble(
        fields, name, "deepseek_v4", layers, mtp_layers=extra, streams=fields.whole("hc_mult", default=4, most=64)
    )
    return _predicting(model, last) if extra else model


def _predicting(model: Model, last: Layer) -> Model:
    """Its extra prediction layers see the window alone, whatever the layers before do."""
    kinds = model.kinds if last in model.kinds else (*model.kinds, last)
    return replace(model, kinds=kinds, mtp_pattern=(kinds.index(last),))


def _mixers(fields: ConfigFields, count: int) -> Sequence[str]:
    """A word for each layer, from a list of words, from one of ratios, or as transformers has it by default."""
    if fields.has("layer_types"):
        return fields.texts("layer_types", choices=tuple(RATIOS), least=count, most=count)
    if fields.has("compress_ratios"):
        words = {ratio: word for word, ratio in RATIOS.items()}
        # what follows belongs to the extra prediction layers
        ratios = fields.wholes("compress_ratios", least=0, most=MOST_LAYERS)[:count]
        if len(ratios) < count or any(ratio not in words for ratio in ratios):
            raise fields.refuse("compress_ratios", f"{count} numbers out of {', '.join(map(str, words))}")
        return [words[ratio] for ratio in ratios]
    return [SPARSE if index > 1 and index % 2 else HEAVY for index in range(count)]


def _hashed(fields: ConfigFields, count: int) -> int:
    """How many layers, from the first on, look their experts up."""
    if not fields.has("mlp_layer_types"):
        return fields.whole("num_hash_layers", default=3, least=0, most=MOST_LAYERS)
    words = fields.texts("mlp_layer_types", choices=ROUTERS, least=count, most=count)
    number = words.count("hash_moe")
    if any(word == "hash_moe" for word in words[number:]):
        raise fields.refuse("mlp_layer_types", "every hash_moe before the first moe")
    return number


def _attention(fields: ConfigFields, word: str) -> Attention:
    rates = fields.section("compress_rates")
    ratio = rates.whole(word, default=RATIOS[word], most=10**6) if RATIOS[word] else 0
    ranked = word == SPARSE
    return Attention(
        heads=fields.whole("num_attention_heads"),
        kv_heads=1,
        head_dim=fields.whole("head_dim"),
        q_lora=fields.whole("q_lora_rank"),
        rope_dim=fields.whole("qk_rope_head_dim", default=64),
        window=fields.whole("sliding_window"),
        sinks=True,
        compressed=CompressedAttention(
            ratio=ratio,
            out_groups=fields.whole("o_groups"),
            out_rank=fields.whole("o_lora_rank"),
            overlapping=ranked,
            index_heads=fields.whole("index_n_heads") if ranked else 0,
            index_dim=fields.whole("index_head_dim") if ranked else 0,
            top_k=fields.whole("index_topk") if ranked else 0,
        ),
    )


def _routed(fields: ConfigFields, *, router_bias: bool) -> Experts:
    return experts(
        fields,
        "n_routed_experts",
        "moe_intermediate_size",
        shared_width=fields.whole("moe_intermediate_size")
        * fields.whole("n_shared_experts", default=1, least=0, most=4096),
        router_bias=router_bias,
    )


FAMILY = Family(
    name="deepseek_v4",
    model_types=("deepseek_v4",),
    read=read,
    names={"q_a_norm": "model.layers.{i}.self_attn.q_norm"},
)
