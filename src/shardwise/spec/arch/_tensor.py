"""One parameter tensor, and how tensor and expert parallelism cut it."""

from collections.abc import Mapping
from math import prod

from msgspec import Struct

from shardwise.spec.arch._names import LAYER, spelled
from shardwise.spec.model import Matrix


class Tensor(Struct, frozen=True, kw_only=True):
    name: str
    role: str
    """what it is, whatever the family calls it: q.weight, norm.0.bias, expert.up.weight"""
    shape: tuple[int, ...]
    """(outputs, inputs) of a matrix; experts are stacked in front: (experts, outputs, inputs)"""
    part: str
    """embedding, layer, head or mtp"""
    split: str
    """column, row and vocab are divided by tp, expert by ep x etp, none is on every tp rank, first on the first one"""
    product: bool = False
    """every token's vector is multiplied with it"""
    pieces: int = 0
    """most parts a split can cut it into (K and V: kv_heads; further tp ranks hold copies); 0: any"""

    @property
    def size(self) -> int:
        return prod(self.shape)


class Maker:
    """Builds the tensors of one model: knows its names and its kind of norm."""

    def __init__(self, names: Mapping[str, str], part: str, norm: str, norm_bias: bool) -> None:
        self._names = names
        self._part = part
        self._norm = norm
        self._norm_bias = norm_bias

    def matrix(
        self,
        role: str,
        outputs: int,
        inputs: int,
        split: str,
        *,
        bias: bool = False,
        pieces: int = 0,
        product: bool = True,
    ) -> tuple[Tensor, ...]:
        """A weight and, if asked for, its bias; after a row split it is added once, so every rank has it."""
        weight = self.plain(role, (outputs, inputs), split, pieces=pieces, product=product)
        if not bias:
            return (weight,)
        return weight, self.plain(role, (outputs,), "none" if split == "row" else split, kind="bias", pieces=pieces)

    def matrix_of(self, matrix: Matrix) -> tuple[Tensor, ...]:
        """One that a layer describes itself, and names."""
        role = f"further.{matrix.name}"
        self._names = {**self._names, role: LAYER + matrix.name}
        return self.matrix(role, matrix.outputs, matrix.inputs, matrix.split, bias=matrix.bias, product=matrix.product)

    def norm(self, role: str, width: int, split: str = "none") -> tuple[Tensor, ...]:
        if self._norm == "none":
            return ()
        weight = self.plain(role, (width,), split)
        return (weight, self.plain(role, (width,), split, kind="bias")) if self._norm_bias else (weight,)

    def plain(
        self,
        role: str,
        shape: tuple[int, ...],
        split: str,
        *,
        kind: str = "weight",
        pieces: int = 0,
        product: bool = False,
    ) -> Tensor:
        name = spelled(self._names[role], kind)
        return Tensor(
            name=name, role=f"{role}.{kind}", shape=shape, part=self._part, split=split, product=product, pieces=pieces
        )
