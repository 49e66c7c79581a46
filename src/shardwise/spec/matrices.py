"""Which layouts of whole matrices an optimizer has, and which policies can have them (policy.MATRIX_LAYOUT)."""

from typing import Any

import numpy as np

from shardwise.arrays import Flags
from shardwise.plugins.optimizers import EXCHANGES, Exchange, UpdateRule
from shardwise.spec.job import Job
from shardwise.spec.policy import MATRIX_LAYOUT, Policies, Policy

BLOCKWISE = MATRIX_LAYOUT.index("blockwise")

CALLED = {
    "gather": "in torchtitan's pull request 3719 fsdp2-Muon; Megatron-LM has none",
    "owned": "in Megatron-LM the LayerWiseDistributedOptimizer (--use-distributed-optimizer with such an optimizer), "
    "in torchtitan's pull request 3719 Owned-Muon",
    "all-to-all": "in torchtitan DistMuon; Megatron-LM has none",
    "blockwise": "in Megatron-LM --muon-tp-mode blockwise; torchtitan has none",
    "duplicated": "in Megatron-LM --muon-tp-mode duplicated; torchtitan's DistMuon takes no tensor parallelism",
}
"""by programs: what they call a layout (2026-08)"""


def has_layout(_: Any, __: int, job: Job, p: Policies) -> Flags:
    known = np.array([not word or word in job.optimizer.rule.layouts for word in MATRIX_LAYOUT])
    return np.asarray(known[p.matrix_layout])


def explain_layout(_: Any, __: int, job: Job, p: Policy) -> str:
    words = " or ".join(("''", *job.optimizer.rule.layouts))
    return f"matrix_layout {p.matrix_layout}, but {job.optimizer.name} has {words}"


def may_share(p: Policies) -> Flags:
    """Whether ranks share matrices in the way of the layout, at a ZeRO stage that shards them."""
    split = np.where(p.matrix_layout == BLOCKWISE, p.tp > 1, p.dp * p.cp > 1)
    return np.asarray((p.matrix_layout == 0) | split)


def shares_matrices(_: Any, __: int, ___: Job, p: Policies) -> Flags:
    sharded = (p.matrix_layout == 0) | (p.matrix_layout == BLOCKWISE) | (p.zero > 0)
    return np.asarray(sharded & may_share(p))


def explain_shares(_: Any, __: int, ___: Job, p: Policy) -> str:
    cure = "tp above 1" if p.matrix_layout == "blockwise" else "dp above 1 and zero 1, 2 or 3"
    return (
        f"matrix_layout {p.matrix_layout}, but no two ranks share a matrix with dp {p.dp}, tp {p.tp} and zero "
        f"{p.zero}; take {cure}"
    )


def alike_layouts(job: Job) -> list[int]:
    """Those that train alike, and the program's own for runs without a shared matrix."""
    rule = job.optimizer.rule
    return [0, *(MATRIX_LAYOUT.index(word) for word in rule.layouts if word != "blockwise")]


def exchange_of(rule: UpdateRule, policy: Policy) -> Exchange:
    """How ranks that ZeRO makes share a matrix update it."""
    if policy.matrix_layout in ("", "blockwise"):
        return rule.exchanges[policy.zero]
    return next(how for how in EXCHANGES if how == policy.matrix_layout) if policy.zero else "none"


def gathers_cut(rule: UpdateRule, policy: Policy) -> bool:
    """Whether pieces of tensor parallelism are gathered before a matrix is updated."""
    return policy.matrix_layout != "blockwise" and rule.exchange_cut == "gather"


def layouts_in_words(rule: UpdateRule, policy: Policy) -> list[str]:
    """Of the matrices that ranks share, in the words of the programs that have the layout."""
    how = exchange_of(rule, policy)
    found: list[str] = [how] if how != "none" and policy.dp * policy.cp > 1 else []
    if policy.tp > 1 and rule.layouts:
        found.append("duplicated" if gathers_cut(rule, policy) else "blockwise")
    return [f"matrices {word}: {CALLED[word]}" for word in found]
