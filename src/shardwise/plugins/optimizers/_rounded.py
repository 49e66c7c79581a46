"""AdamW whose moments are bytes between steps: each a place in a table, times the largest of its block with its sign,
so that what is rounded once stays as it is."""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from shardwise.plugins.optimizers.adamw_8bit import BLOCK, LEAST

MOMENTS = ("exp_avg", "exp_avg_sq")
DECADES = 7


@cache
def table(*, signed: bool) -> tuple[float, ...]:
    """256 values from 1 down to a ten-millionth: of each decade twice as many as of the one below it, in the middle of
    equal intervals (dynamic tree quantisation, arXiv:2110.02861)."""
    found, signs = [0.0, 1.0], (1.0, -1.0) if signed else (1.0,)
    for decade in range(DECADES):
        parts = 2 ** (decade + 2 - len(signs))
        each = (10.0 ** (decade + 1 - DECADES) * (0.1 + 0.9 * (i + 0.5) / parts) for i in range(parts))
        found += [sign * value for value in each for sign in signs]
    return tuple(sorted(found))


@cache
def _tables(device: torch.device, *, signed: bool) -> tuple[Tensor, Tensor]:
    """Values, and the edges between them."""
    values = torch.tensor(table(signed=signed), device=device, dtype=torch.float32)
    return values, (values[1:] + values[:-1]) / 2


def _chain(
    value: Tensor, grad: Tensor, means: Tensor, mean_tops: Tensor, squares: Tensor, square_tops: Tensor,
    signed: Tensor, signed_edges: Tensor, plain: Tensor, plain_edges: Tensor, numbers: Tensor,
) -> None:  # fmt: skip
    """Of rows of one block each."""
    rate, decay, beta1, beta2, first, second, epsilon = numbers.unbind()
    g = grad.to(value.dtype)
    m = signed[means.int()].to(value.dtype) * mean_tops[:, None]
    s = plain[squares.int()].to(value.dtype) * square_tops[:, None]
    m = m + (1.0 - beta1) * (g - m)
    s = beta2 * s + (1.0 - beta2) * g * g
    value.copy_(value * (1.0 - rate * decay) - rate * (m / first) / (torch.sqrt(s / second) + epsilon))
    for moment, codes, tops, edges in ((m, means, mean_tops, signed_edges), (s, squares, square_tops, plain_edges)):
        code, top = _rounded(moment, edges)
        tops.copy_(top)
        codes.copy_(code)


def _rounded(values: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """(codes, scales) of rows of one block each."""
    high, low = values.amax(1), values.amin(1)
    top = torch.where(high >= -low, high, low).float()
    scaled = (values / torch.where(top == 0.0, 1.0, top)[:, None]).float()
    # a square above 0 stays so: a moment over the root of 0 would be a step without bounds
    return torch.maximum(torch.bucketize(scaled, edges, out_int32=True), (scaled > 0.0).int()), top


class AdamOfBytes(Optimizer):
    """Of tensors that are runs of one tensor each."""

    def __init__(self, tensors: list[Tensor], betas: tuple[float, float], epsilon: float, weight_decay: float) -> None:
        super().__init__(tensors, {"lr": 0.0, "weight_decay": weight_decay})
        self.betas, self.epsilon, self.run = betas, epsilon, _compiled()
        self.sizes = {tensor: tensor.numel() for tensor in tensors}
        """elements of the tensors that they are runs of"""

    def fresh(self, tensor: Tensor) -> dict[str, Tensor]:
        if self.sizes[tensor] < LEAST:
            return {"step": torch.zeros(()), **{name: torch.zeros_like(tensor) for name in MOMENTS}}
        blocks = -(-tensor.numel() // BLOCK)
        zeros = {name: table(signed=name == "exp_avg").index(0.0) for name in MOMENTS}
        codes = {f"{name}_code": torch.full_like(tensor, zeros[name], dtype=torch.uint8).flatten() for name in MOMENTS}
        tops = {f"{name}_top": torch.zeros(blocks, device=tensor.device) for name in MOMENTS}
        return {"step": torch.zeros(()), **codes, **tops}

    def opened(self, tensor: Tensor) -> dict[str, Tensor]:
        """Moments in full: new tensors, or those that are kept so."""
        state, found = self.state[tensor], {}
        for name in MOMENTS if state else ():
            if name in state:
                found[name] = state[name]
                continue
            values, _ = _tables(tensor.device, signed=name == "exp_avg")
            tops = state[f"{name}_top"].repeat_interleave(BLOCK)[: tensor.numel()]
            found[name] = (values[state[f"{name}_code"].int()].to(tensor.dtype) * tops).view_as(tensor)
        return found

    def close(self, tensor: Tensor, moments: dict[str, Tensor]) -> None:
        """The other way round."""
        state = self.state[tensor]
        for name, values in moments.items():
            if name not in state:
                _, edges = _tables(tensor.device, signed=name == "exp_avg")
                for part, first, end in _parts(values.flatten()):
                    codes, tops = _rounded(part, edges)
                    state[f"{name}_code"][first:end] = codes.flatten()
                    state[f"{name}_top"][first // BLOCK : -(-end // BLOCK)] = tops

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002
        for group in self.param_groups:
            for tensor in group["params"]:
                if tensor.grad is not None:
                    self._update(tensor, tensor.grad, group["lr"], group["weight_decay"])

    def _update(self, tensor: Tensor, grad: Tensor, rate: float, decay: float) -> None:
        state = self.state[tensor]
        if not state:
            state.update(self.fresh(tensor))
        state["step"] += 1
        done, (beta1, beta2) = float(state["step"]), self.betas
        first, second = 1.0 - beta1**done, 1.0 - beta2**done
        if "exp_avg" in state:
            mean, square = state["exp_avg"], state["exp_avg_sq"]
            mean.lerp_(grad, 1.0 - beta1)
            square.mul_(beta2).addcmul_(grad, grad, value=1.0 - beta2)
            tensor.mul_(1.0 - rate * decay)
            tensor.sub_(rate * (mean / first) / ((square / second).sqrt_().add_(self.epsilon)))
            return
        wide = torch.promote_types(tensor.dtype, torch.float32)
        numbers = torch.tensor([rate, decay, beta1, beta2, first, second, self.epsilon], dtype=wide)
        numbers = numbers.pin_memory().to(tensor.device, non_blocking=True) if tensor.is_cuda else numbers
        tables = (*_tables(tensor.device, signed=True), *_tables(tensor.device, signed=False))
        flat = tensor.view(-1)
        for part, begin, end in _parts(flat):
            blocks = slice(begin // BLOCK, -(-end // BLOCK))
            columns = (grad.reshape(-1), state["exp_avg_code"], state["exp_avg_sq_code"])
            g, means, squares = (column[begin:end].view(part.shape) for column in columns)
            tops, square_tops = state["exp_avg_top"][blocks], state["exp_avg_sq_top"][blocks]
            self.run(part, g, means, tops, squares, square_tops, *tables, numbers)


def _parts(flat: Tensor) -> list[tuple[Tensor, int, int]]:
    """(rows of one block each, first, end): whole blocks, then what is left of one."""
    whole = len(flat) // BLOCK * BLOCK
    edges = [(0, whole, BLOCK), (whole, len(flat), len(flat) - whole)]
    return [(flat[first:end].view(-1, width), first, end) for first, end, width in edges if first < end]


@cache
def _compiled() -> Any:
    """One kernel on a GPU, whatever the number of blocks."""
    compiled: list[Any] = []

    def run(value: Tensor, *others: Tensor) -> None:
        if not value.is_cuda:
            _chain(value, *others)
            return
        if not compiled:
            compiled.append(torch.compile(_chain, dynamic=True))
        compiled[0](value, *others)

    return run
