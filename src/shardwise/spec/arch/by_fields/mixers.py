"""What mixes the tokens in each layer: a word for each, and attention, a scan or matrices from the fields."""

from collections.abc import Sequence

from msgspec.structs import replace

from shardwise.spec.arch._fields import MOST_LAYERS, ConfigFields
from shardwise.spec.arch.by_fields.form import Form
from shardwise.spec.arch.by_fields.sizes import PICKS_KEYS, SHARES_KEYS, given, size
from shardwise.spec.model import Attention, Delta, Layer, Mamba, Matrix

FULL, NEAR, LINEAR, BOTH = "full", "near", "linear", "both"
WORDS = {
    "full_attention": FULL, "attention": FULL, "global": FULL, "indexed_attention": FULL, "a": FULL,
    "minimax_m3_sparse": FULL, "deepseek_sparse_attention": FULL,
    "sliding_attention": NEAR, "local": NEAR, "chunked_attention": NEAR, "hybrid_sliding": NEAR,
    "linear_attention": LINEAR, "mamba": LINEAR, "recurrent": LINEAR, "conv": LINEAR, "m": LINEAR, "r": LINEAR,
    "hybrid": FULL, "hybrid_full": FULL,
}  # fmt: skip
LISTS = ("layer_types", "layers_block_type", "attention_layers", "block_types")


def words_of(fields: ConfigFields, form: Form, count: int) -> Sequence[str]:
    """full, near (a window), linear, or both side by side, for each layer."""
    fixed = form.text("mixer")
    if fixed:
        return [fixed] * count
    listed = next((name for name in LISTS if fields.has(name)), "")
    if listed:
        words = fields.texts(listed, choices=tuple(WORDS), least=1, most=MOST_LAYERS)
        if len(words) < count and listed != "block_types":
            raise fields.refuse(listed, f"{count} words, one for each layer")
        return [WORDS[words[index % len(words)]] for index in range(count)]
    if fields.has("linear_attn_config"):
        # counted from 1 (Kimi)
        full = set(fields.section("linear_attn_config").wholes("full_attn_layers", most=MOST_LAYERS, default=()))
        return [FULL if index + 1 in full else LINEAR for index in range(count)]
    if fields.has("attn_layer_period"):
        period, offset = fields.whole("attn_layer_period"), fields.whole("attn_layer_offset", default=0, least=0)
        return [FULL if index % period == offset else LINEAR for index in range(count)]
    if form.flag("scans"):
        among = set(fields.wholes("attn_layer_indices", least=0, most=MOST_LAYERS, default=()))
        return [FULL if index in among else LINEAR for index in range(count)]
    if fields.has("hybrid_layer_pattern"):
        near = fields.wholes("hybrid_layer_pattern", least=0, most=1)
        if len(near) < count:
            raise fields.refuse("hybrid_layer_pattern", f"{count} numbers, 1 for a window and 0 for none")
        return [NEAR if near[index] else FULL for index in range(count)]
    if fields.has("fullatt_block_indexes"):
        whole = set(fields.wholes("fullatt_block_indexes", least=0, most=MOST_LAYERS))
        return [FULL if index in whole else NEAR for index in range(count)]
    windowed = given(fields, "window") and form.flag("window", _uses_window(fields))
    every = next(
        (fields.whole(n) for n in ("sliding_window_pattern", "global_attn_every_n_layers") if fields.has(n)), 0
    )
    return [NEAR if windowed and (not every or (index + 1) % every) else FULL for index in range(count)]


def _uses_window(fields: ConfigFields) -> bool:
    return fields.flag("use_sliding_window", True)


def attention_of(fields: ConfigFields, form: Form, word: str) -> Attention:
    """Grouped-query attention, or latent attention where the file has a rank for keys and values."""
    heads = size(fields, "heads")
    qkv, out, _ = form.biased
    window = size(fields, "window", 0) if word == NEAR else 0
    if window and fields.has("patch_size"):
        # of an image, stated as the side of a square in pixels
        window = max(window // fields.whole("patch_size"), 1) ** 2
    if fields.has("kv_lora_rank"):
        rope = fields.whole("qk_rope_head_dim")
        plain = fields.whole("qk_nope_head_dim")
        return Attention(
            heads=heads, kv_heads=heads, head_dim=plain + rope, v_head_dim=fields.whole("v_head_dim", default=plain),
            q_lora=fields.whole("q_lora_rank", default=0), kv_lora=fields.whole("kv_lora_rank"), rope_dim=rope,
            bias_qkv=qkv, bias_out=out, window=window,
        )  # fmt: skip
    kv_heads = size(fields, "kv_heads", heads)
    joint = word == FULL and fields.has("attention_k_eq_v") and fields.flag("attention_k_eq_v")
    if joint:
        kv_heads = fields.whole("num_global_key_value_heads", default=kv_heads)
    if fields.has("multi_query") and fields.flag("multi_query") and not fields.has("num_key_value_heads"):
        kv_heads = 1
    hidden = size(fields, "hidden")
    width = size(fields, "head_dim", 0) or max(hidden // heads, 1)
    if word == FULL:
        width = fields.whole("global_head_dim", default=width)
    if not given(fields, "head_dim") and hidden % heads:
        form.notes.append(
            f"hidden_size {hidden} is not a multiple of {heads} heads: heads of {width}, as transformers has it"
        )
    qk_norm = form.qk_norm
    return Attention(
        heads=heads, kv_heads=kv_heads, head_dim=width, v_head_dim=fields.whole("v_head_dim", default=0),
        bias_qkv=qkv, bias_out=out, window=window, sinks=form.flag("sinks"), gated=form.text("gate") == "full",
        causal=form.flag("causal", True), shares_keys=fields.flag(SHARES_KEYS), values_are_keys=joint,
        qk_norm="head" if qk_norm == "head" else "full" if qk_norm == "full" else "none",
    )  # fmt: skip


def beside_attention(fields: ConfigFields, form: Form, attention: Attention, hidden: int) -> tuple[Matrix, ...]:
    """Small products of attention: a gate for each head, an indexer that picks keys (DeepSeek-V3.2)."""
    found = []
    if form.text("gate") == "head":
        found.append(Matrix(name="self_attn.g_proj", outputs=attention.heads, inputs=hidden))
    if attention.latent and form.text("gate") == "latent":
        wide = attention.heads * attention.value_dim
        found.append(Matrix(name="self_attn.gate_proj", outputs=wide, inputs=hidden, split="column"))
    if fields.has("index_n_heads") and attention.q_lora and fields.flag(PICKS_KEYS, True):
        heads, width = fields.whole("index_n_heads"), fields.whole("index_head_dim")
        found += [
            Matrix(name="self_attn.indexer.wq_b", outputs=heads * width, inputs=attention.q_lora),
            Matrix(name="self_attn.indexer.wk", outputs=width, inputs=hidden),
            Matrix(name="self_attn.indexer.weights_proj", outputs=heads, inputs=hidden),
        ]
    return tuple(found)


def scan_of(fields: ConfigFields, form: Form, hidden: int) -> Layer:
    """A layer with only its scan: Mamba-2 and the gated delta rule are priced, others known by their matrices."""
    if fields.has("linear_num_value_heads"):
        delta = Delta(
            key_heads=fields.whole("linear_num_key_heads"),
            value_heads=fields.whole("linear_num_value_heads"),
            key_dim=fields.whole("linear_key_head_dim"),
            value_dim=fields.whole("linear_value_head_dim"),
            conv=fields.whole("linear_conv_kernel_dim", default=4),
        )
        return Layer(delta=delta)
    heads = _first(fields, "mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    if heads and not fields.has("mamba_dt_rank"):
        return Layer(mamba=_mamba_2(fields, heads, hidden))
    form.notes.append("between the matrices of its recurrent layers nothing is priced: the time is a lower bound")
    return Layer(mixer=form.matrices("matrices") or _matrices(fields, form, hidden))


def _mamba_2(fields: ConfigFields, heads: int, hidden: int) -> Mamba:
    inner = _first(fields, "mamba_d_ssm") or hidden * _first(fields, "mamba_expand", "expand", usual=2)
    width = _first(fields, "mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim")
    return Mamba(
        heads=heads,
        head_dim=width or inner // heads,
        state=_first(fields, "mamba_d_state", "ssm_state_size", "state_size", usual=128),
        groups=_first(fields, "mamba_n_groups", "mamba_ngroups", "n_groups", usual=1),
        conv=_first(fields, "mamba_d_conv", "conv_kernel", usual=4),
        chunk=_first(fields, "mamba_chunk_size", "chunk_size", usual=256),
        bias=next((fields.flag(n) for n in ("mamba_proj_bias", "use_bias") if fields.has(n)), False),
    )


def _matrices(fields: ConfigFields, form: Form, hidden: int) -> tuple[Matrix, ...]:
    if fields.has("mamba_dt_rank") or fields.has("time_step_rank"):
        return _mamba_1(fields, hidden)
    if fields.has("linear_num_heads") or fields.has("linear_attn_config"):
        return _kimi_delta(fields, form, hidden)
    if fields.has("lru_width"):
        return _gated_recurrence(fields, hidden)
    if fields.has("conv_L_cache"):
        kernel = fields.whole("conv_L_cache")
        return (
            Matrix(name="conv.in_proj", outputs=3 * hidden, inputs=hidden, split="column"),
            Matrix(name="conv.conv", outputs=hidden, inputs=kernel, split="column", product=False),
            Matrix(name="conv.out_proj", outputs=hidden, inputs=hidden, split="row"),
        )
    wide = size(fields, "heads") * (size(fields, "head_dim", 0) or hidden // size(fields, "heads"))
    return (
        Matrix(name="self_attn.qkv_proj", outputs=3 * wide, inputs=hidden, split="column"),
        Matrix(name="self_attn.output_gate", outputs=wide, inputs=hidden, split="column"),
        Matrix(name="self_attn.out_proj", outputs=hidden, inputs=wide, split="row"),
    )


def _mamba_1(fields: ConfigFields, hidden: int) -> tuple[Matrix, ...]:
    """Mamba (arXiv:2312.00752): the scan's matrices depend on the token through two narrow products."""
    inner = hidden * _first(fields, "mamba_expand", "expand", usual=2)
    rank, state = (
        _first(fields, "mamba_dt_rank", "time_step_rank"),
        _first(fields, "mamba_d_state", "state_size", usual=16),
    )
    conv = _first(fields, "mamba_d_conv", "conv_kernel", usual=4)
    return (
        Matrix(name="mamba.in_proj", outputs=2 * inner, inputs=hidden, split="column"),
        Matrix(name="mamba.conv1d", outputs=inner, inputs=conv, split="column", product=False, bias=True),
        Matrix(name="mamba.x_proj", outputs=rank + 2 * state, inputs=inner, split="row"),
        Matrix(name="mamba.dt_proj", outputs=inner, inputs=rank, split="column", bias=True),
        Matrix(name="mamba.A_log", outputs=inner, inputs=state, split="column", product=False),
        Matrix(name="mamba.out_proj", outputs=hidden, inputs=inner, split="row"),
    )


def _kimi_delta(fields: ConfigFields, form: Form, hidden: int) -> tuple[Matrix, ...]:
    """Kimi delta attention (arXiv:2510.26692): a forget gate of its own for every channel."""
    if fields.has("linear_attn_config"):
        own = fields.section("linear_attn_config")
        heads, width = own.whole("num_heads"), own.whole("head_dim")
        conv = own.whole("short_conv_kernel_size", default=4)
    else:
        heads, width = fields.whole("linear_num_heads"), fields.whole("linear_head_dim")
        conv = fields.whole("linear_conv_kernel_dim", default=4)
    wide = heads * width
    narrow = () if form.flag("whole_gates") else (("f_a_proj", "f_b_proj"), ("g_a_proj", "g_b_proj"))
    gates = [
        matrix
        for first, second in narrow
        for matrix in (
            Matrix(name=f"self_attn.{first}", outputs=width, inputs=hidden),
            Matrix(name=f"self_attn.{second}", outputs=wide, inputs=width, split="column"),
        )
    ] or [Matrix(name=f"self_attn.{n}", outputs=wide, inputs=hidden, split="column") for n in ("f_proj", "g_proj")]
    return (
        Matrix(name="self_attn.qkv_proj", outputs=3 * wide, inputs=hidden, split="column"),
        Matrix(name="self_attn.conv1d", outputs=3 * wide, inputs=conv, split="column", product=False),
        *gates,
        Matrix(name="self_attn.b_proj", outputs=heads, inputs=hidden),
        Matrix(name="self_attn.o_proj", outputs=hidden, inputs=wide, split="row"),
    )


def _gated_recurrence(fields: ConfigFields, hidden: int) -> tuple[Matrix, ...]:
    """Griffin's recurrent block (arXiv:2402.19427); its gates are cut by heads."""
    wide, heads = fields.whole("lru_width"), size(fields, "heads")
    return (
        Matrix(name="temporal_block.linear_y", outputs=wide, inputs=hidden, bias=True, split="column"),
        Matrix(name="temporal_block.linear_x", outputs=wide, inputs=hidden, bias=True, split="column"),
        Matrix(name="temporal_block.gates", outputs=2 * wide, inputs=wide // heads, bias=True, split="column"),
        Matrix(name="temporal_block.linear_out", outputs=hidden, inputs=wide, bias=True, split="row"),
    )


def _first(fields: ConfigFields, *names: str, usual: int = 0) -> int:
    """The first of these that is a number ('auto' is none)."""
    for name in names:
        if fields.has(name) and isinstance(fields.value(name, "a whole number"), int):
            return fields.whole(name)
    return usual


def joined(first: Layer, second: Layer) -> Layer:
    """Two mixers side by side in one layer (Falcon-H1)."""
    return replace(first, mamba=second.mamba, delta=second.delta, mixer=second.mixer)
