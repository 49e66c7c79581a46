"""A cut tried in one process: every rank's share is run, and outputs and gradients must add up to the whole."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from shardwise.auto.blocks import BlockCall
from shardwise.auto.cutting import apply_cut
from shardwise.auto.plan import ProductCut
from shardwise.auto.products import is_product, multiplied
from shardwise.auto.wide import Widened

CLOSE = 1e-4
"""relative: what is wrong is wrong by far more, and code that computes in 32 bits is right to less"""
FAILURES = (
    RuntimeError,
    ValueError,
    TypeError,
    IndexError,
    AssertionError,
    AttributeError,
    KeyError,
    NotImplementedError,
)


ATTENDS = frozenset({"scaled_dot_product_attention", "softmax"})


class Reached(BaseException):
    """Thrown where the row product has been reached: nothing behind it matters."""


class TrialLane:
    """One rank of a pretended lane: sums are not made but kept."""

    def __init__(self, size: int, rank: int, *, detached: bool = False) -> None:
        self.size, self.rank, self.detached = size, rank, detached
        self.left: Tensor | None = None
        self.entered: list[Tensor] = []
        self.mode = Widened()
        self.start = 0
        """functions called before anything entered"""

    @property
    def attends(self) -> bool:
        return any(name in ATTENDS for name in self.mode.called[self.start :])

    def enter(self, x: Tensor) -> Tensor:
        if not self.entered:
            self.start = len(self.mode.called)
        self.entered.append(x)
        return x.detach().requires_grad_(False) if self.detached else x

    def leave(self, x: Tensor) -> Tensor:
        self.left = x
        raise Reached

    def gather(self, x: Tensor) -> Tensor:  # noqa: ARG002
        raise AssertionError("no part of a cut")


@dataclass
class Run:
    """One run of the whole block: what went into and came out of its products, in order."""

    block: nn.Module
    call: BlockCall
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    counts: dict[str, int]

    @property
    def leaves(self) -> dict[str, Tensor]:
        """What gradients are asked for: parameters, then inputs."""
        return {**dict(self.block.named_parameters()), **float_inputs(self.args)}

    args: Any = None


def float_inputs(args: Any) -> dict[str, Tensor]:
    found = (x for x in tree_leaves(args) if isinstance(x, Tensor) and x.is_floating_point())
    return {f"input {place}": x for place, x in enumerate(found)}


def wide_copy(block: nn.Module) -> nn.Module:
    """In 64 bits and without dropout, away from the user's own."""
    found = copy.deepcopy(block).double().eval()
    for parameter in found.parameters():
        parameter.requires_grad_(True)
    return found


def wide_call(call: BlockCall) -> BlockCall:
    def wide(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        return x.detach().double().requires_grad_(x.requires_grad)

    return BlockCall(tree_map(wide, call.args), tree_map(wide, call.kwargs))


def noisy_call(call: BlockCall, seed: int) -> BlockCall:
    """With other values where gradients are asked for."""
    generator = torch.Generator().manual_seed(seed)

    def noisy(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.requires_grad:
            return x
        return torch.randn(x.shape, generator=generator, dtype=x.dtype).mul_(2.0).requires_grad_()

    return BlockCall(tree_map(noisy, call.args), tree_map(noisy, call.kwargs))


def run_whole(block: nn.Module, call: BlockCall) -> Run:
    run = Run(block, call, {}, {}, {})

    def hook(name: str) -> Any:
        def seen(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if not args or not isinstance(args[0], Tensor) or not isinstance(output, Tensor):
                return
            if is_product(module):
                run.counts[name] = run.counts.get(name, 0) + 1
            run.inputs[name], run.outputs[name] = args[0], output

        return seen

    watched = [(name, m) for name, m in block.named_modules() if is_product(m) or stacked(m)]
    hooks = [m.register_forward_hook(hook(name)) for name, m in watched]
    try:
        args, kwargs = call.fresh()
        run.args = (args, kwargs)
        with Widened():
            block(*args, **kwargs)
    finally:
        for each in hooks:
            each.remove()
    return run


def stacked(module: nn.Module) -> list[str]:
    """Its own weights with an axis for several experts."""
    found = [(name, p.shape) for name, p in module.named_parameters(recurse=False) if p.dim() == 3]
    return [name for name, _ in found] if len(found) > 1 and len({shape[0] for _, shape in found}) == 1 else []


class CutTrial:
    """Tries cuts of one block against the whole: those that end in the product `row`, or in the experts' output."""

    def __init__(self, run: Run, row: str, ranks: int) -> None:
        self.run, self.row, self.ranks = run, row, ranks
        ends = run.block.get_submodule(row)
        whole = multiplied(ends, run.inputs[row]) if is_product(ends) else run.outputs[row]
        generator = torch.Generator().manual_seed(1)
        self.direction = torch.randn(whole.shape, generator=generator, dtype=whole.dtype)
        self.whole = whole.detach()
        names = list(run.leaves)
        self.gradients = dict(zip(names, _gradients(whole, self.direction, list(run.leaves.values())), strict=True))
        width = max(1, run.inputs[row].shape[-1] // ranks)
        self.first_share = run.inputs[row][..., :width].detach()

    def fits(self, cut: ProductCut) -> str:
        """Empty, or why the first rank does not compute its share."""
        try:
            lane, run = self._share(cut, 0)
        except FAILURES as error:
            return _line(error)
        weight_share = run.inputs.get(self.row)
        if weight_share is None or lane.left is None:
            return "the row product is not reached"
        if weight_share.shape != self.first_share.shape or not _close(weight_share.detach(), self.first_share):
            return "a rank's share has other values than the whole"
        return ""

    def proven(self, cut: ProductCut) -> str:
        """Empty, or what does not add up over all ranks: the output, or a gradient."""
        total = torch.zeros_like(self.whole)
        gradients: dict[str, Tensor] = {}
        indices: dict[str, Any] = {column.module: column.indices for column in cut.columns}
        indices |= {stack.parameter: stack.indices for stack in cut.stacks}
        for rank in range(self.ranks):
            try:
                lane, run = self._share(cut, rank)
            except FAILURES as error:
                return _line(error)
            if lane.left is None or lane.left.shape != total.shape:
                return "the end of the cut is not reached"
            total += lane.left.detach()
            leaves = run.leaves
            found = _gradients(lane.left, self.direction, list(leaves.values()))
            for name, gradient in zip(leaves, found, strict=True):
                whole = self.gradients[name]
                if whole.shape == gradient.shape:
                    gradients[name] = gradients.get(name, torch.zeros_like(whole)) + gradient
                else:
                    target = gradients.setdefault(name, torch.zeros_like(whole))
                    _place(target, gradient, _indices_of(name, indices, rank, gradient, whole))
        if not _close(total, self.whole):
            return "the shares do not add up to the whole"
        scale = max(float(g.norm()) for g in self.gradients.values())
        for name, whole in self.gradients.items():
            if not _close(gradients[name], whole, floor=1e-6 * scale):
                return f"gradient of {name} does not add up"
        return ""

    def inner(self, cut: ProductCut) -> tuple[list[str], list[str]]:
        """(parameters, inputs) that reach the row product between the cuts: each rank has a part of their gradients."""
        lane, run = self._share(cut, 0, detached=True)
        assert lane.left is not None
        leaves = run.leaves
        found = _gradients(lane.left, self.direction, list(leaves.values()))
        cut_ones = {f"{p}.{w}" for p in [c.module for c in cut.columns] + [cut.row] for w in ("weight", "bias")}
        cut_ones |= {stack.parameter for stack in cut.stacks}
        reached = [n for n, g in zip(leaves, found, strict=True) if n not in cut_ones and bool(g.count_nonzero())]
        return [n for n in reached if not n.startswith("input ")], [n for n in reached if n.startswith("input ")]

    def counted(self, cut: ProductCut) -> ProductCut:
        """With the elements of what enters it, whose gradients are summed, and of its output."""
        lane, _ = self._share(replace(cut, inner=()), 0)
        entries = tuple((x.numel(), x.shape[0] > 1) for x in lane.entered if x.requires_grad)
        return replace(cut, entries=entries, row_elements=self.whole.numel(), attends=lane.attends)

    def _share(self, cut: ProductCut, rank: int, *, detached: bool = False) -> tuple[TrialLane, Run]:
        lane = TrialLane(self.ranks, rank, detached=detached)
        block = copy.deepcopy(self.run.block)
        apply_cut(block, cut, lane)
        run = Run(block, self.run.call, {}, {}, {})
        args, kwargs = self.run.call.fresh()
        run.args = (args, kwargs)

        def seen(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            run.inputs[self.row] = inputs[0]

        hook = block.get_submodule(self.row).register_forward_pre_hook(seen)
        try:
            with lane.mode:
                block(*args, **kwargs)
        except Reached:
            pass
        finally:
            hook.remove()
        return lane, run


def _gradients(output: Tensor, direction: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    asked = [leaf for leaf in leaves if leaf.requires_grad]
    if not output.requires_grad or not asked:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = iter(torch.autograd.grad(output, asked, direction.to(output.dtype), retain_graph=True, allow_unused=True))
    given = [next(found) if leaf.requires_grad else None for leaf in leaves]
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(given, leaves, strict=True)]


def _indices_of(name: str, indices: dict[str, Any], rank: int, share: Tensor, whole: Tensor) -> tuple[int, list[int]]:
    axis = next(a for a in range(whole.dim()) if share.shape[a] != whole.shape[a])
    for owner in (name, name.rpartition(".")[0]):
        if owner in indices:
            return axis, list(indices[owner][rank])
    return axis, list(range(rank * share.shape[axis], (rank + 1) * share.shape[axis]))


def _place(target: Tensor, share: Tensor, at: tuple[int, list[int]]) -> None:
    target.index_add_(at[0], torch.tensor(at[1]), share)


def _close(found: Tensor, wanted: Tensor, floor: float = 0.0) -> bool:
    return float((found - wanted).norm()) <= CLOSE * max(float(wanted.norm()), floor) + 1e-30


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__
