"""Adapters (LoRA, DoRA, QLoRA) in the words of peft, which Hugging Face's programs build them with, and back."""

from collections.abc import Sequence

from shardwise.spec.arch.tuned import adapted_tensors, module_of
from shardwise.spec.model import Model
from shardwise.spec.tuning import GROUPS, Adapters, Tuning

ALL = "all-linear"
"""peft's word for every linear module but the head (peft/utils/constants.py: INCLUDE_LINEAR_LAYERS_SHORTHAND)"""


def peft_targets(model: Model, adapters: Adapters) -> list[str]:
    """Of a tuned model: names of modules, or `ALL`."""
    if adapters.targets == ("all",):
        return [ALL]
    if not set(adapters.targets) & set(GROUPS):
        return list(adapters.targets)
    return sorted({module_of(tensor) for kind in set(model.pattern) for tensor in adapted_tensors(model, kind)})


def tune_text(rank: int, targets: Sequence[str], *, dora: bool = False, base: str = "") -> str:
    """As `--tune` has it; no targets: as peft's table has them for a model, which is queries and values for most."""
    names = tuple("all" if name == ALL else name for name in targets) or ("q_proj", "v_proj")
    return Tuning(adapters=Adapters(rank=rank, targets=names, magnitudes=dora), base=base).tune_text
