"""A part of the model that holds this rank's piece of some of the planner's tensors.

Every piece is cut from the same global tensor: seeded by its name, so that every layout starts from equal weights.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from zlib import crc32

import torch
from torch import Tensor, nn

from shardwise.plugins.optimizers import TensorKind
from shardwise.run.runtime.net.context import Context
from shardwise.run.runtime.parallel.nf4 import FourBitMatrix, in_four_bits
from shardwise.run.runtime.parallel.products import Adapter, LinearWeights
from shardwise.spec.arch.tensors import Tensor as Shape
from shardwise.work.updates import kind_of

STD = 0.02
ALPHA_OVER_RANK = 2.0
"""of adapters: alpha is twice the rank, LLaMA-Factory's default"""


@dataclass(frozen=True)
class TensorPiece:
    """Where this rank's part of a global tensor lies."""

    name: str
    shape: tuple[int, ...]
    """of the whole tensor"""
    cuts: tuple[tuple[int, int, int], ...] = ()
    """(axis, parts, which of them)"""
    partial: bool = False
    """every tensor-parallel rank has it whole but sees a part of its gradient"""
    copies: int = 1
    """tensor-parallel ranks that hold the same of it"""
    copied: bool = False
    """there are more of them than key/value heads: each of the copies sees a part of the gradient"""
    expert: bool = False
    tied: bool = False
    """first and last pipeline stage both hold it"""
    lent: bool = False
    """another chunk of this rank uses it too"""
    kind: TensorKind = "matrix"
    """as an optimizer sees it"""

    def of(self, whole: Tensor) -> Tensor:
        for axis, parts, index in self.cuts:
            whole = whole.chunk(parts, dim=axis)[index]
        return whole

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self._ranges(0))

    @property
    def local_shape(self) -> tuple[int, ...]:
        return tuple(self._ranges(1))

    def _ranges(self, which: int) -> Iterable[int]:
        start, length = [0] * len(self.shape), list(self.shape)
        for axis, parts, index in self.cuts:
            length[axis] //= parts
            start[axis] += length[axis] * index
        return length if which else start


def piece_of(shape: Shape, prefix: str, context: Context) -> TensorPiece:
    return replace(_cut_piece(shape, prefix, context), kind=kind_of(shape))


def _cut_piece(shape: Shape, prefix: str, context: Context) -> TensorPiece:
    tp, name = context.world.tp, prefix + shape.role
    if shape.split == "expert":
        cuts = [(0, context.world.ep.size, context.world.ep.index)]
        inner = 2 if shape.role.startswith("expert.down.") else 1
        if shape.role != "expert.down.bias":
            cuts.append((inner, context.world.etp.size, context.world.etp.index))
        return TensorPiece(name, shape.shape, tuple(c for c in cuts if c[1] > 1), expert=True)
    if shape.role == "token.weight" and context.stack.loss.embedding == "broadcast":
        return TensorPiece(name, shape.shape)
    axes = {"column": 0, "vocab": 0, "row": 1}
    if shape.split not in axes and is_adapter(shape.role):
        # every rank sees its part of the frozen matrix beside it
        return TensorPiece(name, shape.shape, partial=tp.size > 1, copies=tp.size)
    if shape.split not in axes:
        # with sequence parallelism a rank sees its own tokens; a norm of heads sees its own heads in any case
        sees_part = context.cut.sp or shape.role.startswith(("q_norm", "k_norm"))
        return TensorPiece(name, shape.shape, partial=tp.size > 1 and sees_part, copies=tp.size)
    parts = min(tp.size, shape.pieces or tp.size)
    copies = tp.size // parts
    cut = ((axes[shape.split], parts, tp.index // copies),) if parts > 1 else ()
    return TensorPiece(name, shape.shape, cut, copies=copies, copied=copies > 1)


def initial(piece: TensorPiece, role: str, context: Context) -> Tensor:
    if "norm" in role and role.endswith("weight"):
        whole = torch.ones(piece.shape)
    elif role.endswith(("bias", "lora_b")):
        whole = torch.zeros(piece.shape)
    elif context.drawn_here:
        return torch.randn(piece.local_shape, device=context.world.device) * STD
    else:
        generator = torch.Generator().manual_seed(crc32(f"{context.seed} {piece.name}".encode()))
        # ReLUs without a norm between them: He's width (arXiv:1502.01852), or the signal dies out
        std = STD if context.model.inputs == "tokens" else (2.0 / piece.shape[-1]) ** 0.5
        whole = torch.randn(piece.shape, generator=generator) * std
    return piece.of(whole).to(context.world.device).contiguous()


class ModulePart(nn.Module):
    """Parameters by role; `w("q.weight")` reads one, None where the model has none."""

    def __init__(self, shapes: Iterable[Shape], prefix: str, context: Context, frozen: Iterable[Shape] = ()) -> None:
        super().__init__()
        self.context = context
        self.pieces: dict[str, TensorPiece] = {}
        """of what is trained"""
        self.frozen: dict[str, TensorPiece] = {}
        self.packed: dict[str, FourBitMatrix] = {}
        """frozen matrices that are kept in four bits"""
        for shape in shapes:
            self.add(shape, prefix)
        for shape in frozen:
            self.add(shape, prefix, frozen=True)

    def add(self, shape: Shape, prefix: str, *, frozen: bool = False) -> None:
        piece = piece_of(shape, prefix, self.context)
        name = attribute(shape.role)
        (self.frozen if frozen else self.pieces)[name] = piece
        values = initial(piece, shape.role, self.context)
        self.register_parameter(name, nn.Parameter(values, requires_grad=not frozen))

    def mark_tied(self) -> None:
        """Another stage holds the vocabulary table too."""
        name = attribute("token.weight")
        self.pieces[name] = replace(self.pieces[name], tied=True)

    def mark_lent(self) -> None:
        """Another chunk of this rank uses the vocabulary table too."""
        name = attribute("token.weight")
        self.pieces[name] = replace(self.pieces[name], lent=True)

    def w(self, role: str) -> Tensor | None:
        return getattr(self, attribute(role), None)

    def weight(self, role: str) -> Tensor:
        found = self.w(role + ".weight")
        assert found is not None, role
        return found

    def pair(self, role: str) -> tuple[Tensor, Tensor | None]:
        return self.weight(role), self.w(role + ".bias")

    def product(self, role: str) -> LinearWeights:
        a, b = self.w(role + ".lora_a"), self.w(role + ".lora_b")
        adapter = None if a is None or b is None else Adapter(a, b, ALPHA_OVER_RANK)
        return LinearWeights(*self.pair(role), adapter, self.packed.get(attribute(role + ".weight")))

    def pack(self, *, double: bool) -> None:
        """Keeps frozen matrices in four bits from here on; their parameters hold the codes."""
        for name, piece in self.frozen.items():
            if piece.kind == "matrix" and name not in self.packed:
                parameter: nn.Parameter = getattr(self, name)
                self.packed[name] = in_four_bits(parameter, double=double)
                parameter.data = self.packed[name].codes


def is_adapter(role: str) -> bool:
    return role.endswith((".lora_a", ".lora_b"))


def attribute(role: str) -> str:
    """torch keeps dots for the names of modules; roles may hold single underscores."""
    return role.replace(".", "__")
