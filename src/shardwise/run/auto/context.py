"""A sequence shared by ranks: each runs the blocks on its own tokens, and attention sees the keys and values of all.

The code around the blocks runs on whole sequences on every rank, so that positions, masks and the loss stay the
user's own.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from shardwise.run.auto.joined import join_tokens
from shardwise.run.auto.lanes import RankLane
from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.tokens import own_tokens, wholes_output
from shardwise.run.auto.watch import Attention, attention_made

KEYS = -2
"""the axis of keys and values that runs over tokens"""


def share_tokens(model: nn.Module, plan: AutoPlan, lane: RankLane) -> None:
    """Blocks of the model run on this rank's tokens. FSDP2 takes the mean over these ranks, so what it gets of blocks
    is made as many times larger, and smaller again where the gradient leaves them."""
    tokens = plan.tokens
    joins = {name: kind.joins for kind in plan.kinds for name in kind.blocks}
    for place, name in enumerate(plan.order):
        block = model.get_submodule(name)
        known = tokens if not joins[name] else 0
        block.register_forward_pre_hook(_entering(lane, known, first=place == 0), with_kwargs=True, prepend=True)
        for module in joins[name]:
            join_tokens(block.get_submodule(module), lane, tokens // lane.size)
        if not joins[name]:
            block.forward = _attending(block.forward, lane)
    model.get_submodule(plan.order[-1]).register_forward_hook(wholes_output(lane, lane.size))


def _entering(lane: RankLane, tokens: int, *, first: bool) -> Callable[..., Any]:
    """`tokens`: of masks and the like, of which a rank takes its own; 0 where they stay whole."""

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        handed = [True]

        def own(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            if handed and x.is_floating_point():  # the first is what the block before has made
                handed.clear()
                return own_tokens(x, lane, 1.0 / lane.size) if first else x
            axis = token_axis(x, tokens) if tokens else None
            return x if axis is None else lane.own(x, axis)

        return tree_map(own, args), tree_map(own, kwargs)

    return hook


def token_axis(x: Tensor, tokens: int) -> int | None:
    """The axis of an argument that runs over the tokens a rank computes: of a mask that of the queries."""
    at = [axis for axis in range(x.dim()) if x.shape[axis] == tokens]
    if x.dim() >= 2 and x.shape[-1] == x.shape[-2] == tokens:
        return x.dim() - 2
    if len(at) != 1 or (x.dim() == 4 and at[0] == 3):
        return None
    return at[0]


def _attending(forward: Callable[..., Any], lane: RankLane) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        with attention_made(_keys_of_all(lane)):
            return forward(*args, **kwargs)

    return called


def _keys_of_all(lane: RankLane) -> Callable[[Attention], Attention]:
    def seeing_all(attends: Attention) -> Attention:
        def attended(
            query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
            is_causal: bool = False, **rest: Any,
        ) -> Tensor:  # fmt: skip
            key, value = lane.join(key, KEYS), lane.join(value, KEYS)
            if is_causal:
                places = torch.arange(key.shape[KEYS], device=query.device)
                attn_mask = places <= (lane.rank * query.shape[KEYS] + places[: query.shape[KEYS]]).unsqueeze(1)
            return attends(query, key, value, attn_mask, dropout_p, False, **rest)

        return attended

    return seeing_all


def cannot_share_tokens(plan: AutoPlan) -> str:
    holders = {name.rpartition(".")[0] for name in plan.order}
    if len(holders) > 1:
        return f"{len(holders)} stacks of blocks ({', '.join(sorted(holders))}): the sequence of one is shared"
    if not plan.boundary:
        return "blocks take tensors of different shapes"
    failed = next((kind for kind in plan.kinds if kind.no_joins), None)
    if failed is not None:
        return f"{failed.blocks[0]}: {failed.no_joins}"
    joined = sum(len(kind.blocks) for kind in plan.kinds if kind.joins)
    if len(plan.attention) < len(plan.order) - joined:
        without = len(plan.order) - len(plan.attention) - joined
        return f"{without} blocks have no scaled dot-product attention, which is where tokens meet"
    if plan.degrees.tp > 1 and any(kind.joins for kind in plan.kinds):
        return "cp with tp: modules that get the tokens of all ranks are not cut too"
    if not plan.tokens or plan.tokens % plan.degrees.cp:
        return f"{plan.tokens} tokens are not shared evenly by {plan.degrees.cp} ranks"
    return ""
