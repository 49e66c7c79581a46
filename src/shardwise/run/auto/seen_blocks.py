"""What the first block of each kind does, in order: its products, its attention, its experts; shapes only."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from shardwise.run.auto.blocks import BlockKind
from shardwise.run.auto.products import is_product, widths
from shardwise.run.auto.trial import stacked
from shardwise.run.auto.watch import AttentionArguments, attention_seen


@dataclass(frozen=True)
class ProductSeen:
    inputs: int
    outputs: int
    bias: bool
    every_token: bool = True
    """it takes a row for each token; otherwise one for each sample, or less"""


@dataclass(frozen=True)
class AttentionSeen:
    heads: int
    head_dim: int
    value_dim: int
    causal: bool


@dataclass(frozen=True)
class ExpertsSeen:
    count: int
    top_k: int
    shapes: tuple[tuple[int, ...], ...]


@dataclass
class BlockSeen:
    """One block: what ran in it, and its norms."""

    events: list[ProductSeen | AttentionSeen | ExpertsSeen] = field(default_factory=list)
    norms: list[tuple[str, tuple[int, ...], bool]] = field(default_factory=list)
    """class, widths of its weights, whether it has a bias"""
    parameters: int = 0
    hidden: int = 0
    tokens: int = 0
    rows: int = 0
    """tokens of all samples"""


def blocks_seen(kinds: list[BlockKind], run: Callable[[], object]) -> list[BlockSeen]:
    found = [BlockSeen() for _ in kinds]
    open_: list[BlockSeen] = []
    hooks = []
    for kind, seen in zip(kinds, found, strict=True):
        block = kind.first
        seen.parameters = sum(p.numel() for p in block.parameters())
        seen.norms = [_norm(m) for m in block.modules() if _is_norm(m)]
        hooks.append(block.register_forward_pre_hook(_enters(seen, open_), with_kwargs=True))
        hooks.append(block.register_forward_hook(lambda *_: open_.clear()))
        for module in block.modules():
            if is_product(module):
                hooks.append(module.register_forward_hook(_product(seen)))
            elif stacked(module):
                hooks.append(module.register_forward_hook(_experts(seen), with_kwargs=True))

    def attended(call: AttentionArguments) -> None:
        if open_ and call.query.dim() == 4:
            causal, shape = call.causal or _triangle(call.mask), call.query.shape
            open_[0].events.append(AttentionSeen(shape[1], shape[-1], call.value.shape[-1], causal))

    try:
        with attention_seen(attended):
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _triangle(mask: Tensor | None) -> bool:
    """It hides the last token from the first one."""
    if mask is None or mask.shape[-1] != mask.shape[-2]:
        return False
    corner = mask[..., 0, -1].flatten()[0]
    return not bool(corner) if not mask.is_floating_point() else float(corner) < -1.0


def _enters(seen: BlockSeen, open_: list[BlockSeen]) -> Callable[..., None]:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not seen.events:
            open_[:] = [seen]
            x = next(x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point())
            seen.hidden, seen.tokens = x.shape[-1], x.shape[1] if x.dim() > 2 else 0
            seen.rows = x.numel() // x.shape[-1]

    return hook


def _product(seen: BlockSeen) -> Callable[..., None]:
    def hook(module: nn.Module, _: tuple[Any, ...], output: Any) -> None:
        rows = output.numel() // output.shape[-1] if isinstance(output, Tensor) else 0
        biased = getattr(module, "bias", None) is not None
        seen.events.append(ProductSeen(*widths(module), biased, every_token=rows >= seen.rows))

    return hook


def _experts(seen: BlockSeen) -> Callable[..., None]:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], _: Any) -> None:
        shapes = tuple(tuple(module.get_parameter(name).shape) for name in stacked(module))
        chosen = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and not x.is_floating_point()]
        seen.events.append(ExpertsSeen(shapes[0][0], chosen[0].shape[-1] if chosen else 0, shapes))

    return hook


def _is_norm(module: nn.Module) -> bool:
    own = list(module.parameters(recurse=False))
    return bool(own) and not is_product(module) and all(p.dim() == 1 for p in own) and not list(module.children())


def _norm(module: nn.Module) -> tuple[str, tuple[int, ...], bool]:
    weight = next(module.parameters(recurse=False))
    return type(module).__name__, tuple(weight.shape), getattr(module, "bias", None) is not None
