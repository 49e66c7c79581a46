"""Operations with every way to cut them. A cut exists only where the sizes divide by the ranks.

A matrix here is as in Y = X·W: `column` gives every rank a slice of the outputs, `row` a slice of the inputs, `whole`
all of it on all tokens, `tokens` all of it on a slice of the tokens, `experts` whole experts of its own.
"""

from dataclasses import dataclass, replace

from shardwise.plan.search.problems.cuts._graph import (
    ENDS,
    AttentionKernel,
    CutChoice,
    CutGraph,
    CutOperation,
    CutTensor,
    Input,
    Output,
)
from shardwise.plan.search.problems.cuts._layouts import Layout
from shardwise.spec.job import Precision
from shardwise.work.ops import Gemm, Pointwise, element_bytes

WHOLE = Input("replicated", "replicated")
SLICE_OF_WIDTH = Input("features", "features")
SLICE_OF_ROWS = Input("tokens", "tokens")
SHARED = Input("replicated", "partial")
"""every rank reads all of it for its own part of the work, so the ranks' gradients add up"""


@dataclass(frozen=True)
class Heads:
    """One input of attention."""

    tensor: str
    heads: int
    """heads that lie side by side in its width"""


@dataclass(frozen=True)
class AttentionSizes:
    sequences: int
    seq: int
    keys: int
    heads: int
    score_width: int
    value_width: int
    causal_share: float
    """share of the queries x keys square that is computed"""
    causal: bool = True

    @property
    def block(self) -> int:
        """as of `work.ops.Attend`"""
        return min((2 if self.causal else 1) * self.keys, self.seq)

    @property
    def scores(self) -> float:
        return self.sequences * self.heads * float(self.seq) * self.keys * self.causal_share


class Builder:
    def __init__(self, name: str, ranks: int, tokens: int, precision: Precision) -> None:
        self.name, self.ranks, self.tokens = name, ranks, tokens
        self.element, self.stream = element_bytes(precision), precision.residual_bytes
        self.tensors: dict[str, CutTensor] = {}
        self.ops: list[CutOperation] = []
        self.notes: list[str] = []

    def graph(self, outputs: tuple[str, ...], block: str = "") -> CutGraph:
        for name in outputs:
            tensor = self.tensors[name]
            choices = [CutChoice(held, (Input(held, held, kept=False),)) for held in self._ends(tensor)]
            self.ops.append(CutOperation(f"out of {name}", "output", (name,), None, tuple(choices)))
        self.ops = [self._without_misfits(op) for op in self.ops]
        if self.tokens % self.ranks:
            self.notes.append(f"{self.tokens:,} tokens do not divide by {self.ranks} ranks: no cut splits tokens")
        return CutGraph(self.name, self.ranks, self.tokens, self.tensors, tuple(self.ops), block, tuple(self.notes))

    def _without_misfits(self, op: CutOperation) -> CutOperation:
        """Values and context cut inside every head have their features in another order than other tensors do: only
        matrices, whose rows and columns may stand in any order, may make and read them."""
        if op.kind != "attention":
            return op
        readers = {name: [other for other in self.ops if name in other.reads] for name in (op.reads[-1], op.name)}
        maker = next(other for other in self.ops if other.writes == op.reads[-1])
        own = maker.kind == "matrix" and readers[op.reads[-1]] == [op] and op.reads.count(op.reads[-1]) == 1
        if own and all(reader.kind == "matrix" for reader in readers[op.name]):
            return op
        return replace(op, choices=tuple(choice for choice in op.choices if choice.name != "gathered"))

    def _ends(self, tensor: CutTensor) -> list[Layout]:
        return [held for held in tensor.layouts(self.ranks) if held in ENDS.values()]

    def _add(self, op: CutOperation, width: int, rows: int, experts: int = 0) -> str:
        self.tensors[op.name] = CutTensor(op.name, rows, width, experts)
        self.ops.append(op)
        return op.name

    def input(self, name: str, width: int) -> str:
        made = CutTensor(name, self.tokens, width)
        choices = [CutChoice(held, output=Output(held, held)) for held in self._ends(made)]
        return self._add(CutOperation(name, "input", (), name, tuple(choices)), width, self.tokens)

    def matrix(self, name: str, read: str, out: int, *, low_precision: bool = True) -> str:
        """One product; of copies of tokens: one for each expert."""
        given, ranks = self.tensors[read], self.ranks
        experts, layouts = given.experts or 1, given.layouts(ranks)
        rows, inner, grouped = given.rows / experts, given.width, given.experts > 0
        size = float(inner) * out * experts

        def gemm(share_rows: int = 1, share_out: int = 1, share_in: int = 1, share_experts: int = 1) -> Gemm:
            return Gemm(name, rows / share_rows, out / share_out, inner / share_in, experts / share_experts,
                        low_precision, grouped)  # fmt: skip

        cut = size / ranks
        choices = []
        if out % ranks == 0:
            features = Output("features", "features")
            choices.append(CutChoice("column", (SHARED,), features, gemm(share_out=ranks), weights=cut))
        if "features" in layouts:
            partial = Output("partial", "replicated")
            choices.append(CutChoice("row", (SLICE_OF_WIDTH,), partial, gemm(share_in=ranks), weights=cut))
        choices.append(CutChoice("whole", (WHOLE,), Output("replicated", "replicated"), gemm(), weights=size))
        if "tokens" in layouts:
            own = Output("tokens", "tokens")
            choices.append(CutChoice("tokens", (SLICE_OF_ROWS,), own, gemm(ranks), weights=size, summed=size))
        if "experts" in layouts:
            own = Output("experts", "experts")
            taken = (Input("experts", "experts"),)
            choices.append(CutChoice("experts", taken, own, gemm(share_experts=ranks), weights=cut))
        about = {"in": inner, "out": out, "experts": experts}
        return self._add(
            CutOperation(name, "matrix", (read,), name, tuple(choices), about), out, given.rows, given.experts
        )

    def activation(self, name: str, *reads: str) -> str:
        """An element-wise function; of two inputs: the gated one."""
        given = self.tensors[reads[0]]
        forward = self.element * given.rows * given.width * (len(reads) + 1)
        backward = self.element * given.rows * given.width * (2 * len(reads) + 1)
        choices = [
            CutChoice(h, (Input(h, h),) * len(reads), Output(h, h), pointwise=self._passes(name, forward, backward, h))
            for h in given.layouts(self.ranks)
        ]
        op = CutOperation(name, "activation", reads, name, tuple(choices))
        return self._add(op, given.width, given.rows, given.experts)

    def norm(self, name: str, read: str, weights: int) -> str:
        """Over the width of a token, so only tokens can be dealt out; then its weights' gradients are summed."""
        given = self.tensors[read]
        moved = given.rows * given.width * self.stream
        choices = []
        for held in self._ends(given):
            if held != "features":
                passes = self._passes(name, 2 * moved, 4 * moved, held)
                choices.append(CutChoice(held, (Input(held, held),), Output(held, held), pointwise=passes,
                                      weights=weights, summed=weights if held == "tokens" else 0.0))  # fmt: skip
        return self._add(CutOperation(name, "norm", (read,), name, tuple(choices)), given.width, given.rows)

    def add(self, name: str, *reads: str) -> str:
        """A sum; linear, so it may also be taken of partial sums."""
        given = self.tensors[reads[0]]
        moved = given.rows * given.width * self.stream
        choices = []
        held: Layout
        for held in [*self._ends(given), "partial"]:
            back: Layout = "replicated" if held == "partial" else held
            passes = self._passes(name, 3.0 * moved, 2.0 * moved, held)
            taken = (Input(held, back, kept=False),) * len(reads)
            choices.append(CutChoice(held, taken, Output(held, back), pointwise=passes))
        return self._add(CutOperation(name, "add", reads, name, tuple(choices)), given.width, given.rows)

    def _passes(self, name: str, forward: float, backward: float, held: Layout) -> Pointwise:
        share = 1.0 if held in ("replicated", "partial") else self.ranks
        return Pointwise(name, forward / share, backward / share)

    def attention(
        self, name: str, query: str, keys: tuple[Heads, ...], sizes: AttentionSizes, *, values_last: bool = False
    ) -> str:
        """Scores, softmax and their product with the values.

        keys: the tensors every query looks at (keys, values; or a latent pair and the shared rotary part).
        values_last: the last of them is all values, so that its features can be cut inside every head."""
        ranks = self.ranks
        out = sizes.heads * sizes.value_width
        own = Output("features", "features")

        def attended(share: int = 1, value_width: float = sizes.value_width) -> AttentionKernel:
            rows = sizes.sequences * sizes.heads * sizes.seq / sizes.block
            return AttentionKernel(sizes.scores / share, sizes.score_width, value_width, sizes.block, rows / share)

        choices = []
        if sizes.heads % ranks == 0:
            # fewer key heads than ranks: every rank takes, and keeps, the ones its queries look at
            picked = Input("replicated", "partial", kept=False)
            taken = [SLICE_OF_WIDTH if part.heads % ranks == 0 else picked for part in keys]
            choices.append(CutChoice("heads", (SLICE_OF_WIDTH, *taken), own, attended=attended(ranks)))
        if values_last and sizes.value_width % ranks == 0:
            taken = [*[SHARED] * (len(keys) - 1), SLICE_OF_WIDTH]
            thin = attended(value_width=sizes.value_width / ranks)
            choices.append(CutChoice("gathered", (SHARED, *taken), own, attended=thin))
        both = Output("replicated", "replicated")
        choices.append(CutChoice("whole", (WHOLE,) * (1 + len(keys)), both, attended=attended()))
        mine = Output("tokens", "tokens")
        if self.tokens % ranks == 0:
            choices.append(CutChoice("tokens", (SLICE_OF_ROWS, *[SHARED] * len(keys)), mine, attended=attended(ranks)))
        if sizes.sequences % ranks == 0:
            every = (SLICE_OF_ROWS,) * (1 + len(keys))
            choices.append(CutChoice("sequences", every, mine, attended=attended(ranks)))
        reads = (query, *(part.tensor for part in keys))
        about = {"heads": sizes.heads, "seq": sizes.seq, "score_width": sizes.score_width,
                 "value_width": sizes.value_width, "causal": int(sizes.causal),
                 **{f"heads of {part.tensor}": part.heads for part in keys}}  # fmt: skip
        return self._add(CutOperation(name, "attention", reads, name, tuple(choices), about), out, self.tokens)

    def dispatch(self, name: str, read: str, copies: int, experts: int) -> str:
        """Copies of every token, one for each expert it goes to. Linear, so gradients may stay partial sums."""
        given = self.tensors[read]
        rows = given.rows * copies
        moved = 2.0 * self.element * rows * given.width
        choices = []
        for held in self._ends(given):
            passes = self._passes(name, moved, moved, held)
            choices.append(CutChoice(held, (Input(held, held, kept=False),), Output(held, held), pointwise=passes))
        passes = self._passes(name, moved, moved, "partial")
        shared = Input("replicated", "partial", kept=False)
        choices.append(CutChoice("partial", (shared,), Output("replicated", "partial"), pointwise=passes))
        about = {"copies": copies}
        return self._add(
            CutOperation(name, "dispatch", (read,), name, tuple(choices), about), given.width, rows, experts
        )

    def combine(self, name: str, read: str, scores: str, copies: int) -> str:
        """The copies of a token, each times its score, added up."""
        given = self.tensors[read]
        rows = given.rows // copies
        moved = 2.0 * self.element * given.rows * given.width
        ways: list[tuple[str, Input, Input, Output]] = [
            ("replicated", WHOLE, WHOLE, Output("replicated", "replicated")),
            ("partial", Input("partial", "replicated"), SHARED, Output("partial", "replicated")),
        ]
        if "experts" in given.layouts(self.ranks):
            ways.append(("experts", Input("experts", "experts"), SHARED, Output("partial", "replicated")))
        if rows % self.ranks == 0:
            ways.append(("tokens", SLICE_OF_ROWS, SLICE_OF_ROWS, Output("tokens", "tokens")))
        if given.width % self.ranks == 0:
            ways.append(("features", SLICE_OF_WIDTH, SHARED, Output("features", "features")))
        choices = [
            CutChoice(held, (copied, score), out, pointwise=self._passes(name, moved, moved, copied.value))
            for held, copied, score, out in ways
        ]
        about = {"copies": copies}
        return self._add(CutOperation(name, "combine", (read, scores), name, tuple(choices), about), given.width, rows)
