"""Batch arithmetic: global = micro-batch x accumulation steps x data-parallel ranks."""

from math import isqrt, prod

from msgspec import Struct

MOST = 10**12


class Batch(Struct, frozen=True, kw_only=True):
    """One optimizer step, in sequences and tokens. Every field is whole; `global_batch` is the product."""

    seq: int
    micro_batch: int
    accumulation: int
    """micro-batches each rank works through before it updates; the pipeline's micro-batch count"""
    dp: int
    global_batch: int

    @property
    def tokens(self) -> int:
        return self.global_batch * self.seq

    @property
    def micro_tokens(self) -> int:
        return self.micro_batch * self.seq


def data_parallel(gpus: int, *, tp: int = 1, pp: int = 1, cp: int = 1) -> int:
    """Data-parallel ranks that are left when tensor, pipeline and context parallelism have taken theirs."""
    for name, value in (("gpus", gpus), ("tp", tp), ("pp", pp), ("cp", cp)):
        _positive(name, value)
    model = prod((tp, pp, cp))
    if gpus % model:
        raise ValueError(
            f"gpus: {gpus:,} is not a multiple of tp {tp} x pp {pp} x cp {cp} = {model}; write {_around(gpus, model)}"
        )
    return gpus // model


def batch_of(*, seq: int, global_batch: int | None = None, micro_batch: int | None = None,
             accumulation: int | None = None, dp: int | None = None) -> Batch:  # fmt: skip
    """Solves for what is not given: accumulation first, then dp, then micro; what nothing decides is 1."""
    given = {"micro": micro_batch, "accumulation": accumulation, "dp": dp}
    for name, value in (("seq", seq), ("global", global_batch), *given.items()):
        if value is not None:
            _positive(name, value)
    if global_batch is None:
        parts = {name: value or 1 for name, value in given.items()}
        _positive("global", prod(parts.values()))
        return _batch(seq, parts)
    # What is left over goes into accumulation first: it costs neither memory nor GPUs.
    free = next((name for name in ("accumulation", "dp", "micro") if given[name] is None), None)
    parts = {name: value or 1 for name, value in given.items()}
    known = prod(parts.values())
    if free is None and known != global_batch:
        raise ValueError(
            f"global: {global_batch:,} is not micro {parts['micro']:,} x accumulation {parts['accumulation']:,} x dp "
            f"{parts['dp']:,} = {known:,}; write {known:,}, or leave one of them out"
        )
    if free is not None:
        if global_batch % known:
            raise ValueError(_does_not_divide(global_batch, parts, free))
        parts[free] = global_batch // known
    return _batch(seq, parts)


def splits(global_batch: int, dp: int) -> list[tuple[int, int]]:
    """Every (micro-batch, accumulation) that makes this global batch on dp ranks, small micro-batches first."""
    if global_batch % dp:
        return []
    per_rank = global_batch // dp
    return [(micro, per_rank // micro) for micro in divisors(per_rank)]


def divisors(number: int) -> list[int]:
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _batch(seq: int, parts: dict[str, int]) -> Batch:
    return Batch(
        seq=seq, micro_batch=parts["micro"], accumulation=parts["accumulation"], dp=parts["dp"],
        global_batch=prod(parts.values()),
    )  # fmt: skip


def _does_not_divide(global_batch: int, parts: dict[str, int], free: str) -> str:
    named = {name: value for name, value in parts.items() if name != free}
    product = " x ".join(f"{name} {value:,}" for name, value in named.items())
    step = prod(named.values())
    text = (
        f"global: {global_batch:,} sequences do not divide by {product} = {step:,}; write {_around(global_batch, step)}"
    )
    for name in ("micro", "dp"):
        others = step // parts[name]
        if name != free and parts[name] > 1 and global_batch % others == 0:
            near = _nearest(divisors(global_batch // others), parts[name])
            text += f", or {name} {' or '.join(f'{d:,}' for d in near)}"
    return text


def _nearest(values: list[int], target: int) -> list[int]:
    """The largest value below the target and the smallest above it, where there are such."""
    below, above = [v for v in values if v < target], [v for v in values if v > target]
    return [*below[-1:], *above[:1]]


def _multiples(number: int, step: int, least: int) -> list[int]:
    """The quotients just below and above number / step, none below `least`."""
    low = number // step
    return [q for q in (low, low + 1) if q >= least]


def _around(number: int, step: int) -> str:
    return " or ".join(f"{q * step:,}" for q in _multiples(number, step, 1))


def _positive(name: str, value: int) -> None:
    if not 1 <= value <= MOST:
        raise ValueError(f"{name}: {value:,} is out of range; write a whole number from 1 to {MOST:,}")
