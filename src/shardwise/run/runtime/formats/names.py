"""Which weight a tensor belongs to, by the names that training programs give optimizer state."""

import re
from collections.abc import Iterable, Mapping

from shardwise.run.runtime.formats.stored import MASTER, OTHER, STEP, WEIGHT

MOMENTS = (
    "exp_avg",
    "exp_avg_sq",
    "max_exp_avg_sq",
    "momentum_buffer",
    "exp_inf",
    "square_avg",
    "grad_avg",
    "acc_delta",
    "sum",
)
_KINDS = {one: one for one in MOMENTS} | {
    "step": STEP, "fp32_param": MASTER, "fp32": MASTER, "master_param": MASTER, "param": MASTER,
}  # fmt: skip
_AFTER = re.compile(r"(?:.*?\.)?(?:optim|optimizer)\w*\.(?:.*?\.)??state\.(?P<parameter>.+)\.(?P<kind>\w+)")
"""optim.state.layers.0.weight.exp_avg: torch, torchtitan, fsdp_dtensor"""
_BEFORE = re.compile(r"(?:chained_\d+\.)?optimizer\.state\.(?P<kind>\w+)\.(?P<parameter>.+)")
"""optimizer.state.exp_avg.decoder.layers.0.weight: Megatron's torch_dist"""
_OPTIMIZER = re.compile(r"(?:chained_\d+\.)?(?:optim|optimizer|optimizers)\w*\.")
_BESIDE = re.compile(
    r"(rng|rng_state|lr_scheduler|scheduler|dataloader|train_state|opt_param_scheduler|rerun_state_machine|"
    r"iteration|step|args|checkpoint_version|num_floating_point_operations_so_far)\b.*"
)
_HEADS = ("model.", "module.", "module.module.", "model.module.", "model.module.module.")
"""before the names of weights, where a program saves the model under a name of its own"""


def classified(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Name -> (kind, the weight's name)."""
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        before, after = _BEFORE.fullmatch(name), _AFTER.fullmatch(name)
        match = before if before and before["kind"] in _KINDS else after
        if match and match["kind"] in _KINDS:
            found[name] = (_KINDS[match["kind"]], match["parameter"])
        elif _OPTIMIZER.match(name) or _BESIDE.fullmatch(name):
            found[name] = (OTHER, name)
        else:
            found[name] = (WEIGHT, name)
    return _without_head(found)


def _without_head(found: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Weights under the names that the optimizer uses for them; without an optimizer under their own, less the head of
    a whole model whose names begin alike, as Hugging Face's do."""
    weights = [name for name, (kind, _) in found.items() if kind == WEIGHT]
    belong = {parameter for kind, parameter in found.values() if kind not in (WEIGHT, OTHER)}
    plain = [one.removeprefix(_HEADS[0]) for one in weights if one.startswith(_HEADS[0])]
    if not belong and len(plain) == len(weights) and any(one.startswith(_HEADS[0]) for one in plain):
        belong = set(plain)
    for head in _HEADS:
        if not belong & set(weights) and belong & {one.removeprefix(head) for one in weights if one.startswith(head)}:
            return {
                name: (kind, parameter.removeprefix(head) if kind == WEIGHT else parameter)
                for name, (kind, parameter) in found.items()
            }
    return dict(found)
