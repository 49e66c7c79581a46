"""What to do about a cause, in the words of the program that ran: a priced change of the policy, or its own setting."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as policy_with

from shardwise.measured.diagnose.causes import CURES, Cause
from shardwise.plugins.pipeline import usual_schedule
from shardwise.programs.formats._contract import Format, Launch, expressed, settled
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.rules import legal
from shardwise.step.estimate.closed_form import estimate

LEAST_GAIN = 0.005
"""below, two predictions cannot be told apart"""
OWN: dict[str, dict[str, tuple[str, ...]]] = {
    "megatron": {"data": ("--num-workers 8",), "checkpoint": ("--async-save", "--ckpt-format torch_dist"),
                 "host": ("--manual-gc", "--manual-gc-interval 100"),
                 "spikes": ("--manual-gc", "--manual-gc-interval 100")},
    "primus": {"data": ("num_workers: 16",), "checkpoint": ("async_save: true", "ckpt_format: torch_dist"),
               "host": ("manual_gc: true", "manual_gc_interval: 100"),
               "spikes": ("manual_gc: true", "manual_gc_interval: 100")},
    "bridge": {"data": ("dataset.num_workers=8",), "checkpoint": ("checkpoint.async_save=true",),
               "host": ("train.manual_gc=true", "train.manual_gc_interval=100"),
               "spikes": ("train.manual_gc=true", "train.manual_gc_interval=100")},
    "torchtitan": {"checkpoint": ('checkpoint.async_mode = "async_with_pinned_mem"',),
                   "host": ("compile.enable = true",)},
    "nanotron": {"data": ("data_stages[].data.num_loading_workers: 8",)},
    "maxtext": {"data": ("dataset_type: grain", "grain_worker_count: 8"),
                "checkpoint": ("async_checkpointing: true",
                               "enable_multi_tier_checkpointing: true (with local_checkpoint_directory)")},
    "verl": {"data": ("data.dataloader_num_workers=8",)},
    "deepspeed": {"data": ("dataloader_num_workers=8 (of the Trainer)",)},
    "accelerate": {"data": ("dataloader_num_workers=8 (of the Trainer)",)},
}  # fmt: skip
"""settings of a program that no policy holds, beyond its defaults. Read in Megatron-LM d98e8a64d
megatron/training/config/training_config.py, Megatron-Bridge 067f987df src/megatron/bridge/training/config.py
(which takes over those classes) and data/base.py, Primus fd1eeabb
primus/configs/modules/megatron/trainer_base.yaml (8 workers, and `ckpt_format: torch`, with which nothing is
saved in the background, in most of its examples), MaxText e591f30cb src/maxtext/configs/base.yml (workers are of
grain's loader, and saving in the background is its default)"""
_BETWEEN = re.compile(r",\s+|\s+(?=--)|[{}]|\n")


@dataclass(frozen=True)
class Cure:
    advice: str
    options: tuple[str, ...] = ()
    """lines of the program's own file, as they should read"""
    policy: Policy | None = None
    step_change: float | None = None
    """share of the predicted step, below zero is faster; None where it cannot be priced"""


def cure_of(cause: Cause, target: Format | None, launch: Launch | None) -> Cure:
    advice = CURES[cause.code]
    if target is None or launch is None:
        return Cure(advice, OWN.get(target.name, {}).get(cause.code, ()) if target else ())
    best = _best(cause.code, target, launch)
    if best is not None:
        return Cure(advice, _changed_lines(target, launch, best[0]), best[0], best[1])
    return Cure(advice, OWN.get(target.name, {}).get(cause.code, ()))


def _best(code: str, target: Format, launch: Launch) -> tuple[Policy, float] | None:
    """The change against this cause that is legal, fits and is fastest, with its change of the step."""
    case, now = launch.case, launch.policy
    tried: dict[Policy, None] = {}
    for fields in _changes(code, now, case.cluster.node_size):
        try:
            wanted = replace(launch, policy=settled(policy_with(now, **fields), case), layers=())
            tried[expressed(target, wanted)[0].policy] = None
        except ValueError:
            continue
    tried.pop(now, None)
    if not tried:
        return None
    columns = Policies.of([now, *tried])
    allowed = legal(case.model, case.cluster, case.job, columns)
    kept = [now, *(policy for policy, ok in zip(tried, allowed[1:], strict=True) if ok)]
    if len(kept) == 1:
        return None
    found = estimate(case, Policies.of(kept))
    steps = found.times.step_s
    changes = [(float(steps[row] / steps[0] - 1), row) for row in range(1, len(kept)) if found.fits[row]]
    change, row = min(changes, default=(0.0, 0))
    return (kept[row], change) if change <= -LEAST_GAIN else None


def _changes(code: str, now: Policy, node: int) -> Iterator[dict[str, Any]]:
    if code == "grad_comm":
        yield {"overlap_grad": True}
    if code in ("param_comm", "fsdp_comm"):
        yield {"overlap_param": True}
    if code == "fsdp_comm":
        yield {"shard_group": min(node, now.dp * now.cp)}
        yield {"zero": 2}
        yield {"zero": 1}
    if code == "tp_comm":
        yield {"sp": True}
        yield {"overlap_tp": True}
        if now.tp > 1:
            yield {"tp": now.tp // 2, "dp": now.dp * 2, "sp": now.sp and now.tp > 2}
    if code == "cp_comm" and now.cp > 1:
        yield {"cp": now.cp // 2, "dp": now.dp * 2}
    if code == "bubble":
        for vpp in (2, 4, 8):
            yield {"vpp": vpp, "schedule": usual_schedule(vpp), "overlap_pp": True}
        if now.micro_batch > 1:
            yield {"micro_batch": now.micro_batch // 2}
    if code == "copy":
        yield {"offload": "none", "offload_share": 1.0}
    if code == "compute":
        yield {"recompute": "none", "recompute_layers": -1, "recompute_modules": ()}
        yield {"recompute": "selective", "recompute_layers": -1}
        yield {"attention": "flash"}
    if code in ("compute", "fsdp_comm", "host", "level"):
        yield {"micro_batch": now.micro_batch * 2}


def _changed_lines(target: Format, launch: Launch, policy: Policy) -> tuple[str, ...]:
    """What differs between the program's file of this launch and that of the better one."""
    try:
        before = target.written(expressed(target, replace(launch, layers=()))[0]).files
        after = target.written(expressed(target, replace(launch, policy=policy, layers=()))[0]).files
    except ValueError:
        return ()
    known = Counter(piece for text in before.values() for piece in _pieces(text))
    new = Counter(piece for text in after.values() for piece in _pieces(text)) - known
    return tuple(piece for piece in new if not piece.startswith("#"))


def _pieces(text: str) -> list[str]:
    """Single settings of a file in any of the forms."""
    return [piece for each in _BETWEEN.split(text) if (piece := each.strip().rstrip("\\)").strip())]
