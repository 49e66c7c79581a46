"""The planner's Model traced from a module of transformers, beside its hand-written family's. For `auto.py`."""

import torch

from _auto_programs import EXPERTS, GROUPED, PICTURES, QUIET, TOKENS, WIDE, WORDS
from shardwise.run.auto.as_model import traced_model
from shardwise.spec.arch import model_from_config
from shardwise.spec.arch.tensors import matmul_parameters, parameters

FAMILIES = {
    "Llama": ("LlamaForCausalLM", {**GROUPED, **QUIET}),
    "Qwen3": ("Qwen3ForCausalLM", {**GROUPED, **QUIET, "head_dim": 16}),
    "Mixtral": ("MixtralForCausalLM", EXPERTS),
    "GPT2": ("GPT2LMHeadModel", {"n_embd": 64, "n_layer": 4, "n_head": 8, "vocab_size": WORDS, "n_positions": 32}),
    "Bert": ("BertForPreTraining", {**WIDE, "max_position_embeddings": 32}),
    "ViT": ("ViTForImageClassification", PICTURES),
}


def families_gap() -> float:
    """The largest relative difference of parameters, or of those that tokens are multiplied with: of a classifier's
    head one token of a sample."""
    import transformers

    worst = 0.0
    for family, (name, fields) in FAMILIES.items():
        config = getattr(transformers, f"{family}Config")(**fields)
        model = getattr(transformers, name)(config).eval()
        side = getattr(config, "image_size", 0)
        given = torch.randn(2, 3, side, side) if side else torch.randint(3, WORDS, (2, TOKENS))

        def run(model: torch.nn.Module = model, given: torch.Tensor = given) -> None:
            model(given)

        found, wanted = traced_model(model, run, family), model_from_config(config.to_dict(), family)
        for count in (parameters, matmul_parameters):
            worst = max(worst, abs(count(found) / count(wanted) - 1))
    return worst
