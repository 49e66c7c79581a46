"""Further families of transformers as small programs: those that were tried first as new ones and have been mended
since (`auto.py --more`), and those that nothing was developed with (`auto.py --fresh`)."""

from _auto_programs import GROUPED, PICTURES, QUIET, SMALL, WIDE, WORDS, _program

MORE = {
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

FRESH = {
    each.name: each
    for each in (
        _program("gpt-bigcode", "decoder", "GPTBigCode", {"n_embd": 64, "n_layer": 4, "n_head": 8, "n_positions": 32,
                                                          "vocab_size": WORDS, **QUIET}),
        _program("codegen", "decoder", "CodeGen", {"n_embd": 64, "n_layer": 4, "n_head": 8, "n_positions": 32,
                                                   "rotary_dim": 8, "vocab_size": WORDS, **QUIET}),
        _program("gpt-neo", "decoder", "GPTNeo", {"hidden_size": 64, "num_layers": 4, "num_heads": 8,
                                                  "attention_types": [[["global", "local"], 2]], "window_size": 8,
                                                  "max_position_embeddings": 32, "vocab_size": WORDS, **QUIET}),
        _program("mpt", "decoder", "Mpt", {"d_model": 64, "n_layers": 4, "n_heads": 8, "max_seq_len": 32,
                                           "vocab_size": WORDS, **QUIET}),
        _program("persimmon", "decoder", "Persimmon", {**WIDE, **QUIET}),
        _program("starcoder2", "decoder", "Starcoder2", {**GROUPED, **QUIET}),
        _program("nemotron", "decoder", "Nemotron", {**GROUPED, **QUIET}),
        _program("distilbert", "encoder", "DistilBert", {"dim": 64, "n_layers": 4, "n_heads": 8, "hidden_dim": 128,
                                                         "vocab_size": WORDS, "max_position_embeddings": 32,
                                                         "pad_token_id": 0}, "ForMaskedLM"),
        _program("electra", "encoder", "Electra", {**WIDE, "embedding_size": 64, "max_position_embeddings": 32,
                                                   "pad_token_id": 0}, "ForMaskedLM"),
        _program("deit", "vision", "DeiT", PICTURES, "ForImageClassification"),
    )
}  # fmt: skip
