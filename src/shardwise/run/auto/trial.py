"""A cut tried in one process: every rank's share is run, and outputs and gradients must add up to the whole."""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from shardwise.run.auto.blocks import BlockCall
from shardwise.run.auto.cutting import apply_cut
from shardwise.run.auto.plan import ProductCut
from shardwise.run.auto.products import is_product, multiplied
from shardwise.run.auto.room import refuse_tried
from shardwise.run.auto.spanning import may_span
from shardwise.run.auto.trial_lane import Board, Reached, TrialLane, Waiting
from shardwise.run.auto.wide import Widened

CLOSE = 1e-4
"""relative: what is wrong is wrong by far more, and code that computes in 32 bits is right to less"""
MOST_WAITS = 16
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
    spans: dict[str, str] = field(default_factory=dict)
    """modules that may be norms over all that a product has made, and that product"""
    before: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """modules that may be norms over all that a product takes, that product, and whether they take a gate too"""


def float_inputs(args: Any) -> dict[str, Tensor]:
    found = (x for x in tree_leaves(args) if isinstance(x, Tensor) and x.is_floating_point())
    return {f"input {place}": x for place, x in enumerate(found)}


def wide_copy(block: nn.Module) -> nn.Module:
    """In 64 bits, where they fit, and without dropout, away from the user's own."""
    found = block_copy(block).to(tried_in(block)).eval()
    for parameter in found.parameters():
        parameter.requires_grad_(True)
    return found


def block_copy(block: nn.Module) -> nn.Module:
    """With weights of its own that lie where the block's do until they are cut: of a wide block one copy is much."""
    held = {id(p): nn.Parameter(p.detach(), p.requires_grad) for p in block.parameters()}
    return copy.deepcopy(block, held)


def tried_in(block: nn.Module) -> torch.dtype:
    """64 bits; 32 of a block that has those and is so wide that this machine has no room for more."""
    numbers = sum(p.numel() for p in block.parameters())
    wide = next(block.parameters()).dtype is torch.float64 or not refuse_tried("", numbers)
    return torch.float64 if wide else torch.float32


def wide_call(call: BlockCall, dtype: torch.dtype) -> BlockCall:
    def wide(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        return x.detach().to(dtype).requires_grad_(x.requires_grad)

    return BlockCall(tree_map(wide, call.args), tree_map(wide, call.kwargs))


def noisy_call(call: BlockCall, seed: int) -> BlockCall:
    """With other values where gradients are asked for."""
    generator = torch.Generator().manual_seed(seed)

    def noisy(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.requires_grad:
            return x
        return torch.randn(x.shape, generator=generator, dtype=x.dtype).mul_(2.0).requires_grad_()

    return BlockCall(tree_map(noisy, call.args), tree_map(noisy, call.kwargs))


def run_whole(block: nn.Module, call: BlockCall, straight: Iterable[str] = (), apart: str = "") -> Run:
    """`straight`: modules of which each output is to depend on its own input alone, so that what flows is seen;
    `apart`: a product whose output is to depend on nothing."""
    run = Run(block, call, {}, {}, {})
    normed: dict[str, tuple[Tensor, bool]] = {}

    def hook(name: str) -> Any:
        def seen(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if not args or not isinstance(args[0], Tensor) or not isinstance(output, Tensor):
                return
            if is_product(module):
                run.counts[name] = run.counts.get(name, 0) + 1
                into = args[0]
                run.before |= {n: (name, gated) for n, (x, gated) in normed.items() if _same_numbers(x, into)}
            run.inputs[name], run.outputs[name] = args[0], output

        return seen

    watched = [(name, m) for name, m in block.named_modules() if is_product(m) or stacked(m)]
    hooks = [m.register_forward_hook(hook(name)) for name, m in watched]
    spanning = [(name, m) for name, m in block.named_modules() if may_span(m) and not is_product(m)]
    hooks += [m.register_forward_hook(_spanned(run, name, normed)) for name, m in spanning]
    hooks += [block.get_submodule(name).register_forward_hook(_straightened) for name in straight]
    if apart:
        hooks.append(block.get_submodule(apart).register_forward_hook(lambda _, __, out: out.detach().requires_grad_()))
    try:
        args, kwargs = call.fresh()
        run.args = (args, kwargs)
        with Widened():
            block(*args, **kwargs)
    finally:
        for each in hooks:
            each.remove()
    return run


def _spanned(run: Run, name: str, normed: dict[str, tuple[Tensor, bool]]) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        product = next((each for each, made in run.outputs.items() if args and made is args[0]), "")
        if not args or not isinstance(output, Tensor) or output.shape != getattr(args[0], "shape", None):
            return
        if product:
            run.spans[name] = product
        elif next(module.parameters()).shape[0] == output.shape[-1]:
            normed[name] = (output, len(args) > 1 and isinstance(args[1], Tensor))

    return hook


def _same_numbers(x: Tensor, other: Tensor) -> bool:
    return x is other or (x.data_ptr() == other.data_ptr() and x.shape == other.shape)


def _straightened(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
    into: Tensor = sum(x for x in args if isinstance(x, Tensor))  # type: ignore[assignment]
    return into + (output - into).detach()


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
        self.gradients = dict(zip(names, gradients_of(whole, self.direction, list(run.leaves.values())), strict=True))
        width = max(1, run.inputs[row].shape[-1] // ranks)
        self.first_share = run.inputs[row][..., :width].detach()

    def fits(self, cut: ProductCut) -> str:
        """Empty, or why the first rank does not compute its share."""
        try:
            lane, run = self._shares(cut, 1)[0]
        except FAILURES as error:
            return line_of(error)
        weight_share = run.inputs.get(self.row)
        if weight_share is None or lane.left is None:
            return "the row GEMM is not reached"
        if weight_share.shape != self.first_share.shape or not close(weight_share.detach(), self.first_share):
            return "a rank's share has other values than the whole"
        return ""

    def proven(self, cut: ProductCut) -> str:
        """Empty, or what does not add up over all ranks: the output, or a gradient."""
        try:
            shares = self._shares(cut, self.ranks)
        except FAILURES as error:
            return line_of(error)
        if any(lane.left is None or lane.left.shape != self.whole.shape for lane, _ in shares):
            return "the end of the cut is not reached"
        total = torch.stack([lane.left for lane, _ in shares if lane.left is not None]).sum(0)
        if not close(total.detach(), self.whole):
            return "the shares do not add up to the whole"
        wrong = not_added_up([cut], self.gradients, total, self.direction, [run for _, run in shares])
        return f"gradient of {wrong} does not add up" if wrong else ""

    def inner(self, cut: ProductCut) -> tuple[list[str], list[str]]:
        """(parameters, inputs) that reach the row product between the cuts: each rank has a part of their gradients."""
        found = self._first_gradients(cut, detached=True)
        owners = [*(c.module for c in cut.columns), *(n.module for n in cut.norms), cut.row]
        cut_ones = {f"{owner}.{weight}" for owner in owners for weight in ("weight", "bias")}
        cut_ones |= {f"{name}.weight" for name in cut.sums}
        cut_ones |= {stack.parameter for stack in cut.stacks}
        reached = [n for n, g in found.items() if n not in cut_ones and bool(g.count_nonzero())]
        return [n for n in reached if not n.startswith("input ")], [n for n in reached if n.startswith("input ")]

    def twice(self, cut: ProductCut, inner: list[str]) -> str:
        """Empty, or one of these parameters that is also used before the column products, where gradients are summed
        already: to sum them again would count a part of them as often as there are ranks."""
        behind, all_of = (self._first_gradients(cut, detached=detached) for detached in (True, False))
        least = 1e-6 * max((float(g.norm()) for g in self.gradients.values()), default=0.0)
        return next((n for n in inner if not close(behind[n], all_of[n], floor=least)), "")

    def _first_gradients(self, cut: ProductCut, *, detached: bool) -> dict[str, Tensor]:
        """Of the first rank's share; `detached`: of what is behind the column products only."""
        lane, run = self._shares(cut, 1, detached=detached)[0]
        assert lane.left is not None
        leaves = run.leaves
        return dict(zip(leaves, gradients_of(lane.left, self.direction, list(leaves.values())), strict=True))

    def counted(self, cut: ProductCut) -> ProductCut:
        """With the elements of what enters it, whose gradients are summed, of its norms' sums and of its output."""
        lane, _ = self._shares(replace(cut, inner=()), 1)[0]
        entries = tuple((x.numel(), x.shape[0] > 1) for x in lane.entered if x.requires_grad)
        return replace(cut, entries=entries, row_elements=self.whole.numel(), attends=lane.attends,
                       totals=tuple(lane.totals))  # fmt: skip

    def _shares(self, cut: ProductCut, least: int, *, detached: bool = False) -> list[tuple[TrialLane, Run]]:
        """The first ranks, or all where they need sums of each other: a rank that waits for one is run again."""
        ranks = self.ranks if cut.norms or cut.sums else least
        board = Board(self.ranks)
        lanes = [TrialLane(self.ranks, rank, board, detached=detached) for rank in range(ranks)]
        runs = [self._prepared(cut, lane) for lane in lanes]
        waiting = list(zip(lanes, runs, strict=True))
        for _ in range(MOST_WAITS):
            waiting = [(lane, run) for lane, run in waiting if not self._ran(lane, run)]
            if not waiting:
                return list(zip(lanes, runs, strict=True))
        raise RuntimeError("ranks wait for each other")

    def _prepared(self, cut: ProductCut, lane: TrialLane) -> Run:
        block = block_copy(self.run.block)
        apply_cut(block, cut, lane)
        run = Run(block, self.run.call, {}, {}, {})
        run.args = self.run.call.fresh()
        return run

    def _ran(self, lane: TrialLane, run: Run) -> bool:
        """Whether the rank came to the row product."""

        def seen(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            run.inputs[self.row] = inputs[0]

        hook = run.block.get_submodule(self.row).register_forward_pre_hook(seen)
        lane.begin()
        args, kwargs = run.args
        try:
            with lane.mode:
                run.block(*args, **kwargs)
        except Waiting:
            return False
        except Reached:
            pass
        finally:
            hook.remove()
        return True


def not_added_up(
    cuts: Sequence[ProductCut], wanted: dict[str, Tensor], total: Tensor, direction: Tensor, runs: list[Run]
) -> str:
    """Empty, or the first of the gradients that all ranks' shares, each put where it belongs, do not make whole. One
    after the other: those of a wide block take as much memory as the block."""
    indices: dict[str, Any] = {each.module: each.indices for cut in cuts for each in cut.columns}
    indices |= {each.module: each.indices for cut in cuts for each in cut.norms}
    indices |= {stack.parameter: stack.indices for cut in cuts for stack in cut.stacks}
    leaves = [(rank, name, leaf) for rank, run in enumerate(runs) for name, leaf in run.leaves.items()]
    shares: dict[str, list[tuple[int, Tensor]]] = {}
    for (rank, name, _), share in zip(leaves, gradients_of(total, direction, [x for *_, x in leaves]), strict=True):
        shares.setdefault(name, []).append((rank, share))
    least = 1e-6 * max(float(g.norm()) for g in wanted.values())
    for name, whole in wanted.items():
        gradient = torch.zeros_like(whole, memory_format=torch.contiguous_format)
        for rank, share in shares.pop(name):
            if whole.shape == share.shape:
                gradient += share
            else:
                _place(gradient, share, _indices_of(name, indices, rank, share, whole))
        if not close(gradient, whole, floor=least):
            return name
    return ""


def in_turn(
    ranks: int, prepared: Callable[[TrialLane], Run], part: Callable[[int, Any], Any]
) -> tuple[list[Run], list[Tensor]]:
    """Every rank on its part of the block's inputs, and what each makes; one that waits for another is run again."""
    board = Board(ranks)
    lanes = [TrialLane(ranks, rank, board) for rank in range(ranks)]
    runs = [prepared(lane) for lane in lanes]
    outputs: dict[int, Tensor] = {}
    for _ in range(MOST_WAITS):
        for rank in (each for each in range(ranks) if each not in outputs):
            args, kwargs = part(rank, runs[rank].args)
            lanes[rank].begin()
            try:
                with lanes[rank].mode:
                    outputs[rank] = first_of(runs[rank].block(*args, **kwargs))
            except Waiting:
                continue
        if len(outputs) == ranks:
            return runs, [outputs[rank] for rank in range(ranks)]
    raise RuntimeError("ranks wait for each other")


def agrees(whole: Run, cuts: Sequence[ProductCut], total: Tensor, runs: list[Run]) -> str:
    """Empty, or what the ranks' outputs, put together, have other than the whole block: values or a gradient."""
    args, kwargs = whole.args
    with Widened():
        wanted = first_of(whole.block(*args, **kwargs))
    if total.shape != wanted.shape or not close(total.detach(), wanted.detach()):
        return "ranks give other values than the whole"
    direction = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(2), dtype=wanted.dtype)
    truth = dict(zip(whole.leaves, gradients_of(wanted, direction, list(whole.leaves.values())), strict=True))
    wrong = not_added_up(cuts, truth, total, direction, runs)
    return f"gradient of {wrong} does not add up" if wrong else ""


def first_of(output: Any) -> Tensor:
    found: Tensor = output if isinstance(output, Tensor) else output[0]
    return found


def gradients_of(output: Tensor, direction: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    asked = [leaf for leaf in leaves if leaf.requires_grad]
    if not output.requires_grad or not asked:
        return [_no_gradient(leaf) for leaf in leaves]
    found = iter(torch.autograd.grad(output, asked, direction.to(output.dtype), retain_graph=True, allow_unused=True))
    given = [next(found) if leaf.requires_grad else None for leaf in leaves]
    return [_no_gradient(leaf) if g is None else g for g, leaf in zip(given, leaves, strict=True)]


def _no_gradient(leaf: Tensor) -> Tensor:
    """Zeros as many as the leaf has numbers, of which one is in memory."""
    return torch.zeros((), dtype=leaf.dtype, device=leaf.device).expand(leaf.shape)


def _indices_of(name: str, indices: dict[str, Any], rank: int, share: Tensor, whole: Tensor) -> tuple[int, list[int]]:
    axis = next(a for a in range(whole.dim()) if share.shape[a] != whole.shape[a])
    for owner in (name, name.rpartition(".")[0]):
        if owner in indices:
            return axis, list(indices[owner][rank])
    return axis, list(range(rank * share.shape[axis], (rank + 1) * share.shape[axis]))


def _place(target: Tensor, share: Tensor, at: tuple[int, list[int]]) -> None:
    target.index_add_(at[0], torch.tensor(at[1]), share)


def close(found: Tensor, wanted: Tensor, floor: float = 0.0) -> bool:
    return float((found - wanted).norm()) <= CLOSE * max(float(wanted.norm()), floor) + 1e-30


def line_of(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__
