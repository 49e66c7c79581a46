"""Policies and amounts of money as short text."""

import re
from collections.abc import Iterable

from shardwise.plugins.pipeline import usual_schedule
from shardwise.report.report import Money
from shardwise.spec.policy import DEGREES, Policy

OFFLOAD_CODES = {"optimizer": "off-opt", "activations": "off-act", "both": "off-all"}
CODES = {
    "dp": "data parallel", "tp": "tensor parallel", "pp": "pipeline stages", "vpp": "chunks per stage",
    "cp": "context parallel", "ep": "expert parallel", "etp": "tensor parallel inside experts",
    "z": "ZeRO stage (z1/8: shared by 8 ranks)", "mb": "sequences per micro-batch",
    "full": "recompute of everything (full5: of 5 layers of each stage)", "selective": "recompute of cheap parts",
    "off-opt": "optimizer on the host", "off-act": "activations on the host",
    "off-all": "optimizer and activations on the host", "nosp": "no sequence parallelism",
    "tp-cp-dp-pp": "axes on neighbouring ranks, innermost first",
}  # fmt: skip
"""what the letters of `policy_code` stand for"""
CODE_FORMS = {
    "z": r"z\d",
    "full": r"full\d*$",
    "selective": r"selective\d*$",
    "off-opt": "off-opt",
    "off-act": "off-act",
    "off-all": "off-all",
    "nosp": "nosp$",
    "tp-cp-dp-pp": r"[a-z]+-[a-z]+-[a-z]+-[a-z]+$",
}
"""how the others than degrees look"""
DAY = 86400.0
MILLION = 1e6
WHOLE_DOLLARS = 100.0
"""amounts below are told with cents"""


def policy_text(policy: Policy) -> str:
    """The settings that differ from doing nothing, in one short line."""
    words = [f"{axis} {getattr(policy, axis)}" for axis in DEGREES
             if axis == "dp" or (axis != "vpp" and getattr(policy, axis) > 1)]  # fmt: skip
    if policy.vpp > 1:
        words.append(f"vpp {policy.vpp}")
    if _unusual_schedule(policy):
        words.append(f"schedule {policy.schedule}")
    words += [f"zero {policy.zero}", f"micro {policy.micro_batch}"]
    if policy.shard_group:
        words.append(f"shard group {policy.shard_group}")
    if policy.recompute != "none":
        some = f" ({policy.recompute_layers} layers)" if policy.recompute_layers >= 0 else ""
        of = f" of {' and '.join(policy.recompute_modules)}" if policy.recompute_modules else ""
        words.append(f"recompute {policy.recompute}{some}{of}")
    if policy.offload != "none":
        words.append(f"offload {policy.offload}{_part(policy)}")
    if policy.loss:
        words.append(f"{policy.loss} loss")
    if policy.matrix_layout:
        words.append(f"matrices {policy.matrix_layout}")
    if policy.tp > 1 and not policy.sp:
        words.append("no sequence parallelism")
    if policy.order != Policy().order:
        words.append(f"order {policy.order}")
    if policy.sync:
        words.append(f"sync {policy.sync}")
    return ", ".join(words)


def _part(policy: Policy) -> str:
    return "" if policy.offload_share == 1 else f" {policy.offload_share:.0%}"


def policy_code(policy: Policy) -> str:
    """The same for a narrow table: 'dp64 tp4 pp4 vpp10 z1 mb1'; 'z3/8' shards over 8 ranks, 'full5' recomputes 5
    layers of each stage."""
    words = [f"{axis}{getattr(policy, axis)}" for axis in DEGREES
             if axis == "dp" or getattr(policy, axis) > 1]  # fmt: skip
    words.append(f"z{policy.zero}/{policy.shard_group}" if policy.shard_group else f"z{policy.zero}")
    words.append(f"mb{policy.micro_batch}")
    if policy.recompute != "none":
        words.append(policy.recompute + (str(policy.recompute_layers) if policy.recompute_layers >= 0 else ""))
    words += policy.recompute_modules
    if policy.offload != "none":
        words.append(OFFLOAD_CODES[policy.offload] + _part(policy).strip())
    words += [word for word in (policy.loss, policy.matrix_layout) if word]
    if policy.tp > 1 and not policy.sp:
        words.append("nosp")
    if _unusual_schedule(policy):
        words.append(policy.schedule)
    if policy.order != Policy().order:
        words.append(policy.order)
    if policy.sync:
        words.append(policy.sync.replace(",", " "))
    return " ".join(words)


def legend_of(policies: Iterable[Policy]) -> str:
    """What the codes in these policies mean: of those that are there, each once."""
    there = list(policies)
    words = {word for policy in there for word in policy_code(policy).split()}
    found = [
        f"{code} {meaning}"
        for code, meaning in CODES.items()
        if any(re.match(CODE_FORMS.get(code, rf"{code}\d+$"), word) for word in words)
    ]
    found += sorted({f"{policy.schedule} the pipeline's schedule" for policy in there if _unusual_schedule(policy)})
    found += sorted({f"{policy.loss} the loss" for policy in there if policy.loss})
    found += sorted({f"{p.matrix_layout} where matrices are updated" for p in there if p.matrix_layout})
    found += sorted(
        {f"{policy.sync.split(',')[0]} the strategy of data parallelism" for policy in there if policy.sync}
    )
    modules = sorted({name for policy in there for name in policy.recompute_modules})
    found += [f"{', '.join(modules)} recomputed modules"] if modules else []
    return "codes: " + "; ".join(found)


def _unusual_schedule(policy: Policy) -> bool:
    return policy.pp > 1 and policy.schedule != usual_schedule(policy.vpp)


def days_text(seconds: float) -> str:
    """'0.31', '52.7', '4,085': days as a number, however many."""
    days = seconds / DAY
    return f"{days:,.0f}" if days >= 1000 else f"{days:.3g}"


def mwh_text(joules: float) -> str:
    energy = joules / 3.6e9
    return f"{energy:,.0f}" if energy >= 100 else f"{energy:.3g}"


def usd_text(money: Money) -> str:
    """The rent."""
    return dollars_range(money.usd)


def dollars_range(usd: tuple[float, float] | None) -> str:
    """'615–2,310', or one figure where low and high are the same."""
    if usd is None:
        return "-"
    low, high = usd
    if low == high:
        return dollars_text(high)
    if high < MILLION:
        return f"{dollars_text(low, near=high)}–{dollars_text(high)}"
    return f"{_millions(low)}–{_millions(high)}M"


def _millions(usd: float) -> str:
    return f"{usd / MILLION:,.0f}" if usd >= 100 * MILLION else f"{usd / MILLION:.3g}"


def dollars_text(usd: float, near: float | None = None) -> str:
    """`near`: in whole dollars where that one is."""
    if usd >= MILLION:
        return f"{_millions(usd)}M"
    return f"{usd:,.0f}" if (usd if near is None else near) >= WHOLE_DOLLARS else f"{usd:.2f}"


def size_text(size: float) -> str:
    """Bytes for people: '12.3 GB'."""
    for unit, scale in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"
