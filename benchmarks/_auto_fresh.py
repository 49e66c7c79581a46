"""Families of transformers that nothing was developed with, as small programs. For `auto.py --fresh`."""

from _auto_programs import GROUPED, PICTURES, QUIET, SMALL, WIDE, WORDS, _program

FRESH = {
    each.name: each
    for each in (
        _program("olmo2", "decoder", "Olmo2", {**GROUPED, **QUIET}),
        _program("bloom", "decoder", "Bloom", {"hidden_size": 64, "n_layer": 4, "n_head": 8, "vocab_size": WORDS,
                                               **QUIET}),
        _program("gpt-j", "decoder", "GPTJ", {"n_embd": 64, "n_layer": 4, "n_head": 8, "n_positions": 32,
                                              "rotary_dim": 8, "vocab_size": WORDS, **QUIET}),
        _program("falcon", "decoder", "Falcon", {**SMALL, **QUIET}),
        _program("dinov2", "vision", "Dinov2", {k: v for k, v in PICTURES.items() if k != "intermediate_size"},
                 "ForImageClassification"),
        _program("opt", "decoder", "OPT", {"hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 4,
                                           "vocab_size": WORDS, "num_attention_heads": 8, "word_embed_proj_dim": 64,
                                           "max_position_embeddings": 32, **QUIET}),
        _program("roberta", "encoder", "Roberta", {**WIDE, "max_position_embeddings": 32, "pad_token_id": 0},
                 "ForMaskedLM"),
        _program("cohere", "decoder", "Cohere", {**GROUPED, **QUIET}),
        _program("granite", "decoder", "Granite", {**GROUPED, **QUIET}),
        _program("stablelm", "decoder", "StableLm", {**GROUPED, **QUIET}),
    )
}  # fmt: skip
