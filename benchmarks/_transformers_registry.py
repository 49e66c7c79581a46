"""Every family of transformers that makes, translates or fills in text: its usual configuration and its parameters.

The modules are built on torch's meta device, so nothing is downloaded and nothing takes memory.
"""

import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from shardwise.spec.arch import model_from_config
from shardwise.spec.arch.tensors import parameters

TOLERANCE = 1e-3
ALMOST = {"fuyu", "git", "qianfan_ocr"}
"""within 0.2 %: tables beside the towers that no field states"""
KINDS = ("decoder", "encoder and decoder", "encoder", "several parts")
COMPLETED: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 16, "moe_topk": 2},
    "ministral": {"head_dim": 128},
    "nemotron": {"head_dim": 128},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
}
"""what a usual configuration leaves open and its own module needs"""


@dataclass(frozen=True)
class Known:
    kind: str
    model_type: str
    config: dict[str, Any]
    parameters: int
    """0: its own module cannot be built from its usual configuration"""
    why: str = ""


def _tables() -> dict[str, dict[str, Any]]:
    from transformers.models.auto import modeling_auto as auto

    causal = dict(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    masked = {**auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, "bert": "BertForPreTraining"}
    two = {**auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES, **auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES}
    parts = {**auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES, **auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    two = {name: cls for name, cls in two.items() if name not in parts}
    return {
        "decoder": {n: c for n, c in causal.items() if n not in masked and n not in two and n not in parts},
        "encoder and decoder": two,
        "encoder": {n: c for n, c in masked.items() if n not in two},
        "several parts": parts,
    }


def known_families() -> Iterator[Known]:
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    logging.disable(logging.CRITICAL)
    for kind, table in _tables().items():
        for model_type, named in table.items():
            found: dict[str, Any] = {}
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    cls = getattr(transformers, named if isinstance(named, str) else named[0])
                    whole = CONFIG_MAPPING[model_type]
                    usual = whole if issubclass(whole, cls.config_class) else cls.config_class
                    config = usual(**COMPLETED.get(model_type, {}))
                    found = json.loads(config.to_json_string(use_diff=False))
                    with torch.device("meta"):
                        count = sum(p.numel() for p in cls(config).parameters())
                yield Known(kind, model_type, found, count)
            except Exception as error:  # their modules raise whatever a missing value leads to
                yield Known(kind, model_type, found, 0, f"{type(error).__name__}: {str(error).splitlines()[0][:80]}")


def judged(known: Known) -> tuple[str, str]:
    """(right, wrong, refused or unknown; in words)."""
    try:
        count = parameters(model_from_config(known.config, known.model_type))
    except ValueError as error:
        return "refused" if "\n" not in str(error) else "wrong", str(error)
    if not known.parameters:
        return "unknown", f"{known.model_type}: not built by transformers ({known.why})"
    off = count / known.parameters - 1
    limit = 2 * TOLERANCE if known.model_type in ALMOST else TOLERANCE
    word = "right" if abs(off) <= limit else "wrong"
    return word, f"{known.model_type}: {count:,} for {known.parameters:,} ({off:+.2%})"


def counted() -> dict[str, Any]:
    """How many of transformers' families are read with the parameters their own modules have; null where it cannot be
    asked, with the reason."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        return {"families_read": None, "families_tried": None,
                "families_why": f"{' and '.join(missing)} not installed here"}  # fmt: skip
    words = [judged(known)[0] for known in known_families() if known.config]
    tried = len(words) - words.count("unknown")
    return {"families_read": words.count("right"), "families_tried": tried, "families_why": None}
