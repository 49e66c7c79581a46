"""Whether ranks may share the tokens outside a block's cuts: tried in one process, against the whole block."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from shardwise.run.auto.cutting import apply_cut
from shardwise.run.auto.plan import ProductCut
from shardwise.run.auto.sequence import with_first
from shardwise.run.auto.trial import FAILURES, Run, agrees, block_copy, in_turn, line_of
from shardwise.run.auto.trial_lane import TrialLane


def outside_of(block: nn.Module, cuts: Sequence[ProductCut]) -> tuple[str, ...]:
    """Parameters that no cut shares out and no cut sums."""
    owners = [each.module for cut in cuts for each in cut.columns] + [n.module for cut in cuts for n in cut.norms]
    cut_ones = {f"{owner}.{weight}" for owner in owners for weight in ("weight", "bias")}
    cut_ones |= {f"{cut.row}.weight" for cut in cuts} | {name for cut in cuts for name in cut.inner}
    return tuple(name for name, _ in block.named_parameters() if name not in cut_ones)


def whole_tokens(whole: Run, cuts: Sequence[ProductCut], ranks: int, tokens: int) -> str:
    """Empty, or why every rank must have all tokens outside the cuts."""
    if not tokens or tokens % ranks:
        return f"{tokens} tokens are not shared evenly by {ranks} ranks"
    if not cuts:
        return "no GEMM of the block is cut"
    if any(cut.stacks and not cut.row for cut in cuts):
        return "experts take the tokens of all ranks, in one list"
    if any(not cut.entries for cut in cuts):
        return "the input of the GEMMs has no gradient"
    own = tokens // ranks

    def prepared(lane: TrialLane) -> Run:
        block = block_copy(whole.block)
        for cut in cuts:
            apply_cut(block, cut, lane, tokens=own)
        return Run(block, whole.call, {}, {}, {}, whole.call.fresh())

    def part(rank: int, args: Any) -> Any:
        positional, named = args
        return with_first(positional, named, lambda x: x.narrow(1, rank * own, own))

    try:
        runs, outputs = in_turn(ranks, prepared, part)
        total = torch.cat(outputs, 1)
    except FAILURES as error:
        return f"outside the GEMMs: {line_of(error)}"
    why = agrees(whole, cuts, total, runs)
    return f"outside the GEMMs: {why}" if why else ""
