"""Every model family once more, as plain torch modules on the meta device, straight from its config fields.

Nothing here comes from shardwise: this is the judge of its tensor lists. Fused projections stay fused and shared
weights are shared, as in the models' own code.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import nn

Config = dict[str, Any]
META = torch.device("meta")


def linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=bias, device=META)


def table(rows: int, width: int) -> nn.Embedding:
    return nn.Embedding(rows, width, device=META)


def rms(width: int) -> nn.Module:
    return nn.RMSNorm(width, device=META)


def layer_norm(width: int, bias: bool = True) -> nn.Module:
    return nn.LayerNorm(width, bias=bias, device=META)


def weight(*shape: int) -> nn.ParameterList:
    return nn.ParameterList([nn.Parameter(torch.empty(*shape, device=META))])


def bag(*modules: nn.Module) -> nn.ModuleList:
    return nn.ModuleList(modules)


def grouped(c: Config, qkv_bias: bool = False, out_bias: bool = False) -> nn.ModuleList:
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    groups, width = c.get("num_key_value_heads") or heads, c.get("head_dim") or hidden // heads
    return bag(
        linear(hidden, heads * width, qkv_bias),
        linear(hidden, 2 * groups * width, qkv_bias),
        linear(heads * width, hidden, out_bias),
    )


def gated(hidden: int, width: int) -> nn.ModuleList:
    return bag(linear(hidden, width), linear(hidden, width), linear(width, hidden))


def perceptron(hidden: int, width: int, bias: bool) -> nn.ModuleList:
    return bag(linear(hidden, width, bias), linear(width, hidden, bias))


def gated_experts(count: int, hidden: int, width: int) -> nn.ModuleList:
    return bag(linear(hidden, count), weight(count, 2 * width, hidden), weight(count, hidden, width))


def decoder(
    c: Config, blocks: list[nn.Module], final: nn.Module, *, tied: bool, hidden: int | None = None
) -> nn.ModuleList:
    hidden = hidden or c["hidden_size"]
    tokens, head = table(c["vocab_size"], hidden), linear(hidden, c["vocab_size"])
    if tied:
        head.weight = tokens.weight
    return bag(tokens, *blocks, final, head)


def llama(c: Config) -> nn.Module:
    h, bias = c["hidden_size"], c.get("attention_bias", False)
    blocks = [
        bag(rms(h), rms(h), grouped(c, bias, bias), gated(h, c["intermediate_size"]))
        for _ in range(c["num_hidden_layers"])
    ]
    return decoder(c, blocks, rms(h), tied=c.get("tie_word_embeddings", False))


def qwen2(c: Config) -> nn.Module:
    h = c["hidden_size"]
    blocks = [
        bag(rms(h), rms(h), grouped(c, True), gated(h, c["intermediate_size"])) for _ in range(c["num_hidden_layers"])
    ]
    return decoder(c, blocks, rms(h), tied=c.get("tie_word_embeddings", False))


def qwen3(c: Config) -> nn.Module:
    h, d = c["hidden_size"], c["head_dim"]
    blocks = [
        bag(rms(h), rms(h), grouped(c), rms(d), rms(d), gated(h, c["intermediate_size"]))
        for _ in range(c["num_hidden_layers"])
    ]
    return decoder(c, blocks, rms(h), tied=c.get("tie_word_embeddings", False))


def qwen3_moe(c: Config) -> nn.Module:
    h, d = c["hidden_size"], c["head_dim"]
    blocks: list[nn.Module] = []
    for index in range(c["num_hidden_layers"]):
        dense = index in c.get("mlp_only_layers", []) or (index + 1) % c.get("decoder_sparse_step", 1)
        inner = (
            gated(h, c["intermediate_size"])
            if dense
            else gated_experts(c["num_experts"], h, c["moe_intermediate_size"])
        )
        blocks.append(bag(rms(h), rms(h), grouped(c), rms(d), rms(d), inner))
    return decoder(c, blocks, rms(h), tied=False)


def qwen2_moe(c: Config) -> nn.Module:
    h = c["hidden_size"]
    blocks: list[nn.Module] = []
    for index in range(c["num_hidden_layers"]):
        inner = gated(h, c["intermediate_size"])
        if (index + 1) % c["decoder_sparse_step"] == 0:
            inner = gated_experts(c["num_experts"], h, c["moe_intermediate_size"])
            inner.extend([gated(h, c["shared_expert_intermediate_size"]), linear(h, 1)])
        blocks.append(bag(rms(h), rms(h), grouped(c, True), inner))
    return decoder(c, blocks, rms(h), tied=False)


def mixtral(c: Config) -> nn.Module:
    h = c["hidden_size"]
    blocks: list[nn.Module] = [
        bag(rms(h), rms(h), grouped(c), gated_experts(c["num_local_experts"], h, c["intermediate_size"]))
        for _ in range(c["num_hidden_layers"])
    ]
    return decoder(c, blocks, rms(h), tied=False)


def deepseek(c: Config) -> nn.Module:
    h, heads, latent = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"]
    nope, rope, value, ranks = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c.get("q_lora_rank")
    blocks: list[nn.Module] = []
    for index in range(c["num_hidden_layers"]):
        wide = heads * (nope + rope)
        queries = bag(linear(h, ranks), rms(ranks), linear(ranks, wide)) if ranks else linear(h, wide)
        keys = bag(linear(h, latent + rope), rms(latent), linear(latent, heads * (nope + value)))
        if index < c["first_k_dense_replace"]:
            inner = gated(h, c["intermediate_size"])
        else:
            inner = gated_experts(c["n_routed_experts"], h, c["moe_intermediate_size"])
            for _ in range(c["n_shared_experts"]):
                inner.append(gated(h, c["moe_intermediate_size"]))
            if c["topk_method"] == "noaux_tc":
                inner.append(weight(c["n_routed_experts"]))
        blocks.append(bag(rms(h), rms(h), queries, keys, linear(heads * value, h), inner))
    return decoder(c, blocks, rms(h), tied=False)


def gemma(c: Config) -> nn.Module:
    h = c["hidden_size"]
    blocks = [bag(rms(h), rms(h), grouped(c), gated(h, c["intermediate_size"])) for _ in range(c["num_hidden_layers"])]
    return decoder(c, blocks, rms(h), tied=True)


def gemma2(c: Config) -> nn.Module:
    h = c["hidden_size"]
    blocks = [
        bag(rms(h), rms(h), rms(h), rms(h), grouped(c), gated(h, c["intermediate_size"]))
        for _ in range(c["num_hidden_layers"])
    ]
    return decoder(c, blocks, rms(h), tied=True)


def gemma3(c: Config) -> nn.Module:
    c = c.get("text_config", c)
    h, d = c["hidden_size"], c["head_dim"]
    blocks = [
        bag(*(rms(h) for _ in range(4)), rms(d), rms(d), grouped(c), gated(h, c["intermediate_size"]))
        for _ in range(c["num_hidden_layers"])
    ]
    return decoder(c, blocks, rms(h), tied=True)


def nemotron(c: Config) -> nn.Module:
    h = c["hidden_size"]
    blocks = [
        bag(layer_norm(h), layer_norm(h), grouped(c), perceptron(h, c["intermediate_size"], False))
        for _ in range(c["num_hidden_layers"])
    ]
    return decoder(c, blocks, layer_norm(h), tied=False)


def gpt_oss(c: Config) -> nn.Module:
    h, count, width = c["hidden_size"], c["num_local_experts"], c["intermediate_size"]
    blocks: list[nn.Module] = []
    for _ in range(c["num_hidden_layers"]):
        attention = bag(grouped(c, True, True), weight(c["num_attention_heads"]))
        gate_up = bag(weight(count, h, 2 * width), weight(count, 2 * width))
        down = bag(weight(count, width, h), weight(count, h))
        blocks.append(bag(rms(h), rms(h), attention, linear(h, count, True), gate_up, down))
    return decoder(c, blocks, rms(h), tied=False)


def gpt2(c: Config) -> nn.Module:
    h = c["n_embd"]
    blocks: list[nn.Module] = [
        bag(
            layer_norm(h),
            linear(h, 3 * h, True),
            linear(h, h, True),
            layer_norm(h),
            perceptron(h, c.get("n_inner") or 4 * h, True),
        )
        for _ in range(c["n_layer"])
    ]
    model = decoder(c, blocks, layer_norm(h), tied=c.get("tie_word_embeddings", True), hidden=h)
    return bag(model, table(c["n_positions"], h))


def gpt_neox(c: Config) -> nn.Module:
    h = c["hidden_size"]
    blocks: list[nn.Module] = [
        bag(
            layer_norm(h),
            layer_norm(h),
            linear(h, 3 * h, True),
            linear(h, h, True),
            perceptron(h, c["intermediate_size"], True),
        )
        for _ in range(c["num_hidden_layers"])
    ]
    return decoder(c, blocks, layer_norm(h), tied=False)


def opt(c: Config) -> nn.Module:
    h, width, before = c["hidden_size"], c["word_embed_proj_dim"], c["do_layer_norm_before"]
    tokens, head = table(c["vocab_size"], width), linear(width, c["vocab_size"])
    head.weight = tokens.weight
    ends = bag(tokens, table(c["max_position_embeddings"] + 2, h), head)
    if width != h:
        ends.extend([linear(width, h), linear(h, width)])
    if before:
        ends.append(layer_norm(h))
    for _ in range(c["num_hidden_layers"]):
        attention = bag(*(linear(h, h, True) for _ in range(4)))
        ends.append(bag(layer_norm(h), layer_norm(h), attention, perceptron(h, c["ffn_dim"], True)))
    return ends


def bloom(c: Config) -> nn.Module:
    h = c["hidden_size"]
    blocks: list[nn.Module] = [
        bag(layer_norm(h), layer_norm(h), linear(h, 3 * h, True), linear(h, h, True), perceptron(h, 4 * h, True))
        for _ in range(c["n_layer"])
    ]
    return bag(layer_norm(h), decoder(c, blocks, layer_norm(h), tied=True))


def mpt(c: Config) -> nn.Module:
    h, bias = c["d_model"], not c["no_bias"]
    blocks: list[nn.Module] = [
        bag(
            layer_norm(h, bias), layer_norm(h, bias), linear(h, 3 * h, bias), linear(h, h, bias),
            perceptron(h, c["expansion_ratio"] * h, bias),
        )
        for _ in range(c["n_layers"])
    ]  # fmt: skip
    model = decoder(c, blocks, layer_norm(h, bias), tied=True, hidden=h)
    return model if c["attn_config"]["alibi"] else bag(model, table(c["max_seq_len"], h))


def grok(c: Config) -> nn.Module:
    h = c["hidden_size"]
    blocks: list[nn.Module] = [
        bag(*(rms(h) for _ in range(4)), grouped(c), gated_experts(c["num_experts"], h, c["intermediate_size"]))
        for _ in range(c["num_hidden_layers"])
    ]
    return decoder(c, blocks, rms(h), tied=True)


def llama4(c: Config) -> nn.Module:
    c = c.get("text_config", c)
    h = c["hidden_size"]
    blocks: list[nn.Module] = []
    for index in range(c["num_hidden_layers"]):
        if (index + 1) % c["interleave_moe_layer_step"]:
            inner = gated(h, c["intermediate_size_mlp"])
        else:
            inner = gated_experts(c["num_local_experts"], h, c["intermediate_size"])
            inner.append(gated(h, c["intermediate_size"]))
        blocks.append(bag(rms(h), rms(h), grouped(c), inner))
    return decoder(c, blocks, rms(h), tied=False)


def bert(c: Config) -> nn.Module:
    h = c["hidden_size"]
    tokens, head = table(c["vocab_size"], h), linear(h, c["vocab_size"], True)
    head.weight = tokens.weight
    model = bag(tokens, table(c["max_position_embeddings"], h), table(c["type_vocab_size"], h), layer_norm(h), head)
    model.extend([linear(h, h, True), linear(h, h, True), layer_norm(h), linear(h, 2, True)])
    for _ in range(c["num_hidden_layers"]):
        attention = bag(*(linear(h, h, True) for _ in range(4)))
        model.append(bag(attention, layer_norm(h), perceptron(h, c["intermediate_size"], True), layer_norm(h)))
    return model


def vit(c: Config) -> nn.Module:
    h, side, learned = c["hidden_size"], c["image_size"] // c["patch_size"], 2 if c["model_type"] == "deit" else 1
    patches = nn.Conv2d(c["num_channels"], h, c["patch_size"], c["patch_size"], device=META)
    model = bag(patches, weight(1, learned, h), weight(1, side**2 + learned, h), layer_norm(h))
    for _ in range(c["num_hidden_layers"]):
        attention = bag(*(linear(h, h, c["qkv_bias"]) for _ in range(3)), linear(h, h, True))
        model.append(bag(attention, layer_norm(h), perceptron(h, c["intermediate_size"], True), layer_norm(h)))
    model.append(linear(h, c["num_labels"], True))
    return model


def mlp(c: Config) -> nn.Module:
    sizes = c["layer_sizes"]
    return bag(*(linear(i, o, c["bias"]) for i, o in pairwise(sizes)))


def olmo2(c: Config) -> nn.Module:
    h, heads = c["hidden_size"], c["num_attention_heads"]
    keys = c["num_key_value_heads"] * (h // heads)
    blocks: list[nn.Module] = [
        bag(rms(h), rms(h), grouped(c), rms(h), rms(keys), gated(h, c["intermediate_size"]))
        for _ in range(c["num_hidden_layers"])
    ]
    return decoder(c, blocks, rms(h), tied=False)


def falcon(c: Config) -> nn.Module:
    h, heads = c["hidden_size"], c["num_attention_heads"]
    fused = h + 2 * c["num_kv_heads"] * (h // heads)
    blocks: list[nn.Module] = [
        bag(layer_norm(h), layer_norm(h), linear(h, fused), linear(h, h), perceptron(h, 4 * h, False))
        for _ in range(c["num_hidden_layers"])
    ]
    return decoder(c, blocks, layer_norm(h), tied=True)


def dbrx(c: Config) -> nn.Module:
    h, heads, inner = c["d_model"], c["n_heads"], c["ffn_config"]
    fused = h + 2 * c["attn_config"]["kv_n_heads"] * (h // heads)
    blocks: list[nn.Module] = [
        bag(
            layer_norm(h, False), layer_norm(h, False), linear(h, fused), linear(h, h),
            gated_experts(inner["moe_num_experts"], h, inner["ffn_hidden_size"]),
        )
        for _ in range(c["n_layers"])
    ]  # fmt: skip
    return decoder(c, blocks, layer_norm(h, False), tied=False, hidden=h)


def mamba(c: Config) -> nn.ModuleList:
    heads, inner = c["mamba_num_heads"], c["mamba_num_heads"] * c["mamba_head_dim"]
    mixed = inner + 2 * c["n_groups"] * c["ssm_state_size"]
    return bag(
        linear(c["hidden_size"], inner + mixed + heads, c["use_bias"]),
        nn.Conv1d(mixed, mixed, c["conv_kernel"], groups=mixed, bias=c["use_conv_bias"], device=META),
        weight(heads), weight(heads), weight(heads),
        rms(inner),
        linear(inner, c["hidden_size"], c["use_bias"]),
    )  # fmt: skip


def latent_experts(c: Config) -> nn.ModuleList:
    h, count, width = c["hidden_size"], c["n_routed_experts"], c["moe_intermediate_size"]
    latent = c.get("moe_latent_size")
    found = bag(linear(h, count), weight(count), perceptron(h, c["moe_shared_expert_intermediate_size"], False))
    found.extend([weight(count, latent or h, width), weight(count, width, latent or h)])
    return found.extend([linear(h, latent), linear(latent, h)] if latent else [])


def nemotron_h(c: Config) -> nn.Module:
    words = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
    letters = c.get("hybrid_override_pattern") or [words[word] for word in c["layers_block_type"]]
    blocks: list[nn.Module] = []
    for letter in letters:
        if letter == "M":
            mixer = mamba(c)
        elif letter == "*":
            mixer = grouped(c)
        elif letter == "-":
            mixer = perceptron(c["hidden_size"], c["intermediate_size"], c["mlp_bias"])
        else:
            mixer = latent_experts(c)
        blocks.append(bag(rms(c["hidden_size"]), mixer))
    return decoder(c, blocks, rms(c["hidden_size"]), tied=False)


def delta_rule(c: Config) -> nn.ModuleList:
    h, heads = c["hidden_size"], c["linear_num_value_heads"]
    keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    values = heads * c["linear_value_head_dim"]
    mixed = 2 * keys + values
    conv = nn.Conv1d(mixed, mixed, c["linear_conv_kernel_dim"], groups=mixed, bias=False, device=META)
    products = (linear(h, mixed + values), linear(h, 2 * heads), linear(values, h))
    return bag(*products, conv, weight(heads), weight(heads), rms(c["linear_value_head_dim"]))


def qwen3_next(c: Config) -> nn.Module:
    h, d = c["hidden_size"], c["head_dim"]
    blocks: list[nn.Module] = []
    for index in range(c["num_hidden_layers"]):
        mixer = delta_rule(c)
        if (index + 1) % c["full_attention_interval"] == 0:
            # the query product makes the gate as well
            mixer = bag(grouped(c), linear(h, c["num_attention_heads"] * d), rms(d), rms(d))
        if "num_experts" in c and (index + 1) % c.get("decoder_sparse_step", 1) == 0:
            inner = gated_experts(c["num_experts"], h, c["moe_intermediate_size"])
            inner.extend([gated(h, c["shared_expert_intermediate_size"]), linear(h, 1)])
        else:
            inner = gated(h, c["intermediate_size"])
        blocks.append(bag(rms(h), rms(h), mixer, inner))
    return decoder(c, blocks, rms(h), tied=False)


def pooling(c: Config, ratio: int, width: int) -> nn.ModuleList:
    wide = width * (2 if ratio == 4 else 1)
    return bag(linear(c["hidden_size"], wide), linear(c["hidden_size"], wide), weight(ratio, wide), rms(width))


def compressed(c: Config, ratio: int) -> nn.ModuleList:
    h, low, d = c["hidden_size"], c["q_lora_rank"], c["head_dim"]
    inner, ranks, groups = c["num_attention_heads"] * d, c["o_groups"] * c["o_lora_rank"], c["o_groups"]
    found = bag(linear(h, low), rms(low), linear(low, inner), linear(h, d), rms(d), weight(c["num_attention_heads"]))
    found.extend([weight(groups, c["o_lora_rank"], inner // groups), linear(ranks, h)])
    if ratio:
        found.append(pooling(c, ratio, d))
    if ratio == 4:
        index = c["index_n_heads"] * c["index_head_dim"]
        found.extend([pooling(c, ratio, c["index_head_dim"]), linear(low, index), linear(h, c["index_n_heads"])])
    return found


def deepseek_v4(c: Config) -> nn.Module:
    h, n, width = c["hidden_size"], c["hc_mult"], c["moe_intermediate_size"]
    blocks: list[nn.Module] = []
    for index, ratio in enumerate(c["compress_ratios"][: c["num_hidden_layers"]]):
        mixers = [bag(weight(n * (2 + n), n * h), weight(n * (2 + n)), weight(3)) for _ in range(2)]
        routed = gated_experts(c["n_routed_experts"], h, width)
        routed.append(gated(h, width * c["n_shared_experts"]))
        if index >= c["num_hash_layers"]:
            routed.append(weight(c["n_routed_experts"]))
        blocks.append(bag(rms(h), rms(h), *mixers, compressed(c, ratio), routed))
    joined = bag(rms(h), weight(n, n * h), weight(n), weight(1))
    return decoder(c, blocks, joined, tied=False)


BUILDERS = {
    "llama": llama, "mistral": llama, "mixtral": mixtral, "qwen2": qwen2, "qwen2_moe": qwen2_moe, "qwen3": qwen3,
    "qwen3_moe": qwen3_moe, "deepseek": deepseek, "gemma": gemma, "gemma2": gemma2, "gemma3": gemma3,
    "nemotron": nemotron, "gpt_oss": gpt_oss, "gpt2": gpt2, "gpt_neox": gpt_neox, "opt": opt, "bloom": bloom,
    "mpt": mpt, "grok": grok, "llama4": llama4, "bert": bert,
    "nemotron_h": nemotron_h, "qwen3_next": qwen3_next,
    "deepseek_v4": deepseek_v4,
    "vit": vit, "mlp": mlp, "olmo2": olmo2, "falcon": falcon, "dbrx": dbrx,
}  # fmt: skip
