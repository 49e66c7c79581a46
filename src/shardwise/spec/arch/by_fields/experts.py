"""Which layers have experts, and what they are."""

from shardwise.spec.arch._fields import MOST_LAYERS, ConfigFields
from shardwise.spec.arch.by_fields.form import Form
from shardwise.spec.arch.by_fields.sizes import given, size
from shardwise.spec.model import Experts


def has_experts(fields: ConfigFields, form: Form) -> bool:
    condition = form.text("experts_if")
    if condition and not fields.flag(condition):
        return False
    return given(fields, "experts") and size(fields, "experts", least=0) > 1


def sparse_layers(fields: ConfigFields, form: Form, count: int) -> list[bool]:
    """Whether each layer has experts, from whichever rule the file states."""
    if not has_experts(fields, form):
        return [False] * count
    if fields.has("mlp_layer_types"):
        words = fields.texts("mlp_layer_types", least=count, most=count)
        return [word not in ("dense", "mlp") for word in words]
    if fields.has("moe_layer_freq") and isinstance(fields.value("moe_layer_freq", "a number or a list"), list):
        listed = fields.wholes("moe_layer_freq", least=0, most=1)
        if len(listed) < count:
            raise fields.refuse("moe_layer_freq", f"{count} numbers, 1 for experts and 0 for none")
        return [bool(listed[index]) for index in range(count)]
    if fields.has("moe_layer_start_index"):
        first, last = fields.whole("moe_layer_start_index", least=0), fields.whole("moe_layer_end_index", default=count)
        every = fields.whole("moe_layer_interval", default=1)
        return [first <= i <= last and (i + 1) % every == 0 for i in range(count)]
    if fields.has("expert_layer_period"):
        period, offset = fields.whole("expert_layer_period"), fields.whole("expert_layer_offset", default=0, least=0)
        return [i % period == offset for i in range(count)]
    first = next((fields.whole(n, least=0, most=MOST_LAYERS) for n in ("first_k_dense_replace", "num_dense_layers")
                  if fields.has(n)), 0)  # fmt: skip
    step = fields.whole("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    dense = set(fields.wholes("mlp_only_layers", least=0, most=MOST_LAYERS, default=()))
    return [i >= first and i not in dense and (i + 1) % step == 0 for i in range(count)]


def experts_of(fields: ConfigFields, form: Form, *, glu: bool) -> Experts:
    wide = size(fields, "expert_ffn", 0) or size(fields, "ffn")
    return Experts(
        count=size(fields, "experts"),
        top_k=size(fields, "top_k"),
        width=wide // form.whole("expert_ffn_share", 1),
        glu=glu,
        shared_width=_shared(fields, form, wide),
        shared_gate=form.flag("shared_gate"),
        bias=form.flag("expert_bias"),
        router_bias=form.flag("router_bias"),
        latent=fields.whole("routed_expert_hidden_size", "moe_latent_size", default=0),
    )


def _shared(fields: ConfigFields, form: Form, wide: int) -> int:
    """Width of what every token passes beside its experts: stated, or so many experts."""
    named = form.text("shared")
    if named:
        return fields.whole(named)
    number = size(fields, "shared_experts", 0, least=0)
    if given(fields, "shared_ffn"):
        return size(fields, "shared_ffn", least=0) * (number if form.flag("shared_ffn_of_each") else 1)
    return number * wide
