"""Matrix products cut by tensor parallelism, Megatron's way, with the messages written out.

`entering` products share one input: without sequence parallelism their input gradients are summed over the ranks; with
it the input is gathered before, gathered again for the weight gradients, and its gradient scattered. The `leaving`
product sums its partial outputs, or scatters the sum along the sequence.
Weight gradients can be put off: a schedule that splits the backward runs them later.
A frozen weight has no gradient and keeps no input; an adapter beside it (LoRA, arXiv:2106.09685) keeps that input and
its own narrow middle, and its messages are the ones of the product.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shardwise.run.runtime.parallel.comm import RankComm, RankGroup
from shardwise.run.runtime.parallel.nf4 import FourBitMatrix
from shardwise.run.runtime.parallel.op import AutogradOp

Owed = tuple[Callable[[], None], list[object]]


@dataclass
class Later:
    """Weight gradients that were put off, oldest first; None: they are computed at once."""

    owed: list[Owed] | None = None
    watch: Callable[[Tensor], object] | None = None
    """told of every tensor that is kept for later; what it returns is kept as long"""

    def add(self, pay: Callable[[], None], *kept: Tensor) -> None:
        assert self.owed is not None
        self.owed.append((pay, [self.watch(t) for t in kept] if self.watch else []))


@dataclass(frozen=True)
class Cut:
    """How tensor parallelism cuts the products of this rank."""

    comm: RankComm
    tp: RankGroup
    sp: bool
    """activations between the products are cut along the sequence"""
    later: Later = field(default_factory=Later)

    def whole(self, x: Tensor) -> Tensor:
        return self.comm.gathered(x, self.tp) if self.sp else x

    def summed(self, x: Tensor) -> Tensor:
        """Of a tensor no one else holds."""
        if self.tp.size == 1:
            return x
        return self.comm.scattered(x, self.tp) if self.sp else self.comm.all_reduce(x, self.tp)


class Adapter(NamedTuple):
    """Two narrow trained matrices beside a frozen one: B A x, scaled, is added to its product."""

    a: Tensor
    b: Tensor
    scale: float


class LinearWeights(NamedTuple):
    weight: Tensor
    bias: Tensor | None
    adapter: Adapter | None = None
    packed: FourBitMatrix | None = None
    """the weight itself, where it is kept in four bits"""

    @property
    def trained(self) -> bool:
        """The weight itself."""
        return self.weight.requires_grad

    def matrix(self, like: Tensor) -> Tensor:
        """Of a frozen weight, for a product with `like`."""
        return self.weight if self.packed is None else self.packed.dense(like.dtype)


TAKES_PRODUCTS = "takes_products"
"""attribute of a weight whose owner adds its gradients itself, given the two factors"""


def _by_weight(weight: Tensor, grad: Tensor, x: Tensor) -> Tensor | None:
    """The weight's gradient, or None where its owner has taken it."""
    left, right = grad.flatten(0, -2).t(), x.flatten(0, -2)
    take = getattr(weight, TAKES_PRODUCTS, None)
    if take is None:
        return left @ right
    take(left, right)
    return None


def _add_to_grad(weight: Tensor, grad: Tensor, x: Tensor) -> None:
    found = _by_weight(weight, grad, x)
    if found is not None:
        weight.grad = found if weight.grad is None else weight.grad.add_(found)


ALIGNED = 8
"""elements of 16 bits that Hopper's copy engine loads at once; rows that do not start on them take old kernels, six
times slower (GPT-2's 50,257 words, evidence/timed/trace-stream-h200.csv)"""


def _row(columns: int, x: Tensor) -> int:
    """How far apart rows of a product are kept."""
    return -(-columns // ALIGNED) * ALIGNED if x.is_cuda and x.element_size() == 2 else columns


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """One kernel with the bias; not as a view, which FSDP2 warns of."""
    row = _row(len(weight), x)
    if row == len(weight) and bias is None:
        return F.linear(x, weight)
    flat = x.flatten(0, -2)
    out = None if row == len(weight) else flat.new_empty(len(flat), row)[:, : len(weight)]
    made = torch.mm(flat, weight.t(), out=out) if bias is None else torch.addmm(bias, flat, weight.t(), out=out)
    found: Tensor = torch.ops.aten._unsafe_view(made, [*x.shape[:-1], len(weight)])
    return found


def _by_bias(bias: Tensor | None, grad: Tensor) -> Tensor | None:
    return None if bias is None else grad.flatten(0, -2).sum(0)


class ColumnProduct(AutogradOp):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: Cut, *parameters: Tensor | None) -> tuple[Tensor, ...]:
        """`parameters`: the weights, then as many biases."""
        count = len(parameters) // 2
        ctx.cut, ctx.weights, ctx.biases = cut, parameters[:count], parameters[count:]
        ctx.save_for_backward(x)
        whole = cut.whole(x)
        return tuple(_linear(whole, w, b) for w, b in zip(ctx.weights, ctx.biases, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        cut: Cut = ctx.cut
        (x,) = ctx.saved_tensors
        into = grads[0].flatten(0, -2) @ ctx.weights[0]
        for grad, weight in zip(grads[1:], ctx.weights[1:], strict=True):
            into.addmm_(grad.flatten(0, -2), weight)
        into = cut.summed(into.view(*grads[0].shape[:-1], -1))
        weights: tuple[nn.Parameter, ...] = ctx.weights
        by_biases = [_by_bias(bias, grad) for bias, grad in zip(ctx.biases, grads, strict=True)]
        if cut.later.owed is None:
            whole = cut.whole(x)
            pairs = zip(weights, grads, strict=True)
            return into, None, *(_by_weight(weight, grad, whole) for weight, grad in pairs), *by_biases

        def pay() -> None:
            whole = cut.whole(x)
            for weight, grad in zip(weights, grads, strict=True):
                _add_to_grad(weight, grad, whole)

        cut.later.add(pay, x, *grads)
        return into, None, *(None for _ in grads), *by_biases


class RowProduct(AutogradOp):
    """`bias`: only where nothing is summed after it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, cut: Cut) -> Tensor:
        ctx.cut, ctx.weight, ctx.bias = cut, weight, bias
        ctx.save_for_backward(x)
        return cut.summed(_linear(x, weight, bias))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        cut: Cut = ctx.cut
        (x,) = ctx.saved_tensors
        weight, whole = ctx.weight, cut.whole(grad)
        into, by_bias = whole @ weight, _by_bias(ctx.bias, whole)
        if cut.later.owed is None:
            return into, _by_weight(weight, whole, x), by_bias, None
        cut.later.add(lambda: _add_to_grad(weight, whole, x), x, whole)
        return into, None, by_bias, None


class FrozenColumnProduct(AutogradOp):
    """Products with frozen weights; `factors`: A and B of each adapter, in the order of the products that have one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: Cut, products: tuple[LinearWeights, ...], *_: Tensor) -> tuple[Tensor, ...]:
        ctx.cut, ctx.products = cut, products
        whole = cut.whole(x)
        outputs, middles = [], []
        for product in products:
            made = _linear(whole, product.matrix(whole), product.bias)
            if product.adapter is not None:
                middles.append(_added(made, whole, product.adapter))
            outputs.append(made)
        ctx.save_for_backward(*([x, *middles] if middles else []))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        cut: Cut = ctx.cut
        products: tuple[LinearWeights, ...] = ctx.products
        into, narrows = None, list[Tensor | None]()
        for grad, product in zip(grads, products, strict=True):
            flat = grad.flatten(0, -2)
            part = flat @ product.matrix(flat) if ctx.needs_input_grad[0] else None
            narrows.append(_narrow(product.adapter, flat, part))
            into = part if into is None or part is None else into.add_(part)
        if into is not None:
            into = cut.summed(into.view(*grads[0].shape[:-1], -1))
        if not ctx.saved_tensors:
            return into, None, None
        x, *middles = ctx.saved_tensors
        pairs = [(p.adapter, n, g) for p, n, g in zip(products, narrows, grads, strict=True) if p.adapter is not None]
        return into, None, None, *_factors(cut, lambda: cut.whole(x), pairs, middles, x)


class FrozenRowProduct(AutogradOp):
    """`bias` of the product: only where nothing is summed after it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: Cut, product: LinearWeights, *_: Tensor) -> Tensor:
        ctx.cut, ctx.product = cut, product
        made = _linear(x, product.matrix(x), product.bias)
        if product.adapter is not None:
            ctx.save_for_backward(x, _added(made, x, product.adapter))
        return cut.summed(made)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        product: LinearWeights = ctx.product
        whole = ctx.cut.whole(grad)
        into = whole.flatten(0, -2) @ product.matrix(whole)
        narrow = _narrow(product.adapter, whole.flatten(0, -2), into)
        found = into.view(*whole.shape[:-1], -1)
        if product.adapter is None:
            return found, None, None
        x, middle = ctx.saved_tensors
        pairs = [(product.adapter, narrow, whole)]
        return found, None, None, *_factors(ctx.cut, lambda: x, pairs, [middle], x)


def _added(made: Tensor, x: Tensor, adapter: Adapter) -> Tensor:
    """Adds an adapter's output in place; returns its narrow middle."""
    middle = x.flatten(0, -2) @ adapter.a.t()
    made.view(-1, made.shape[-1]).addmm_(middle, adapter.b.t(), alpha=adapter.scale)
    return middle


def _narrow(adapter: Adapter | None, grad: Tensor, into: Tensor | None) -> Tensor | None:
    """The gradient of an adapter's middle; what goes on to the input is added to `into`."""
    if adapter is None:
        return None
    narrow = (grad @ adapter.b).mul_(adapter.scale)
    if into is not None:
        into.addmm_(narrow, adapter.a)
    return narrow


def _factors(
    cut: Cut, read: Callable[[], Tensor], pairs: list[tuple[Adapter, Tensor | None, Tensor]], middles: list[Tensor],
    x: Tensor,
) -> list[Tensor | None]:  # fmt: skip
    """Gradients of A and B of each adapter, or nothing where they are put off; `read`: the products' input."""

    def found(take: Callable[[Tensor, Tensor, Tensor], Tensor | None]) -> list[Tensor | None]:
        whole = read()
        return [
            each
            for (adapter, narrow, grad), middle in zip(pairs, middles, strict=True)
            if narrow is not None
            for each in (take(adapter.a, narrow, whole), take(adapter.b, grad * adapter.scale, middle))
        ]

    if cut.later.owed is None:
        return found(_by_weight)

    def pay() -> None:
        found(lambda weight, grad, read: _add_to_grad(weight, grad, read))

    cut.later.add(pay, x, *middles, *(t for _, narrow, grad in pairs for t in (narrow, grad) if t is not None))
    return [None] * (2 * len(pairs))


def entering(x: Tensor, cut: Cut, *products: LinearWeights) -> tuple[Tensor, ...]:
    """Several products of one input; the biases are cut as the weights are."""
    found: tuple[Tensor, ...]
    if products[0].trained:
        found = ColumnProduct.apply(x, cut, *(p.weight for p in products), *(p.bias for p in products))
    else:
        factors = [factor for p in products if p.adapter is not None for factor in p.adapter[:2]]
        found = FrozenColumnProduct.apply(x, cut, products, *factors)
    return found


def leaving(x: Tensor, cut: Cut, product: LinearWeights) -> Tensor:
    bias, alone = product.bias, cut.tp.size == 1
    inside = product if alone else product._replace(bias=None)
    if product.trained:
        y: Tensor = RowProduct.apply(x, inside.weight, inside.bias, cut)
    else:
        factors = product.adapter[:2] if product.adapter is not None else ()
        y = FrozenRowProduct.apply(x, cut, inside, *factors)
    return y if alone or bias is None else y + bias
