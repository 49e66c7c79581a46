"""Further families of transformers as small programs: those that were tried first as new ones and have been mended
since (`auto.py --more`), and those that nothing was developed with (`auto.py --fresh`, `--unseen` run once each)."""

import torch
from torch import Tensor

from _auto_programs import EXPERTS, GROUPED, PICTURES, QUIET, SAMPLES, SMALL, WIDE, WORDS, Program, _of, _program

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


def _sounds() -> dict[str, Tensor]:
    return {"input_values": torch.randn(SAMPLES, 128), "labels": torch.randint(0, 10, (SAMPLES,))}


STACKS = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 8,
          "decoder_attention_heads": 8, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": WORDS,
          "max_position_embeddings": 32, "decoder_start_token_id": 2, "forced_eos_token_id": None}  # fmt: skip

UNSEEN = {
    each.name: each
    for each in (
        _program("phi-3", "decoder", "Phi3", {**GROUPED, **QUIET}),
        _program("falcon-h1", "mixer", "FalconH1", {
            **GROUPED, **QUIET, "head_dim": 8, "mamba_d_ssm": 128, "mamba_n_heads": 8, "mamba_d_head": 16,
            "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_chunk_size": 8}),
        _program("granite-moe", "experts", "GraniteMoe", EXPERTS),
        _program("modernbert", "encoder", "ModernBert", {**WIDE, "pad_token_id": 0, "bos_token_id": 1,
                                                         "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2,
                                                         "local_attention": 8}, "ForMaskedLM"),
        Program("wav2vec2", "sound", _of(
            "Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", **WIDE, num_labels=10,
            conv_dim=(16, 16), conv_stride=(2, 2), conv_kernel=(2, 2), num_feat_extract_layers=2,
            num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, classifier_proj_size=32, layerdrop=0.0,
            mask_time_prob=0.0), _sounds),
        _program("esm", "encoder", "Esm", {**WIDE, "max_position_embeddings": 32, "pad_token_id": 0,
                                           "mask_token_id": 1, "position_embedding_type": "rotary"}, "ForMaskedLM"),
        _program("bart", "encoder-decoder", "Bart", {**QUIET, **STACKS}, "ForConditionalGeneration"),
        _program("nemotron-h", "mixer", "NemotronH", {
            **GROUPED, **QUIET, "head_dim": 8, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2,
            "ssm_state_size": 16, "chunk_size": 8, "hybrid_override_pattern": "M*M-"}),
    )
}  # fmt: skip
