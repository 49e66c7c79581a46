"""`batch`: global = micro-batch x accumulation x data parallel, solved for the factor that is missing."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Struct

from shardwise.answers.answer import Answer, FactList, Part, shown, table
from shardwise.step.estimate.batch import batch_of, splits

MOST_SPLITS = 12


class BatchSplit(Struct, frozen=True, kw_only=True):
    micro_sequences: Annotated[int, shown("micro-batch")]
    accumulation: Annotated[int, shown("accumulation")]


class BatchAnswer(Answer, frozen=True, kw_only=True):
    seq_tokens: int
    global_sequences: int
    global_tokens: int
    micro_sequences: int
    micro_tokens: int
    accumulation: int
    dp: int
    tp: int
    pp: int
    cp: int
    gpus: int
    splits: Sequence[BatchSplit]
    """other micro-batches of the same global batch, where none was given"""

    def parts(self) -> Iterator[Part]:
        factors = f"micro {self.micro_sequences:,} x accumulation {self.accumulation:,} x dp {self.dp:,}"
        yield FactList(f"global {self.global_sequences:,} = {factors}", [
            ("sequence", f"{self.seq_tokens:,} tokens"),
            ("global batch", f"{self.global_sequences:,} sequences = {self.global_tokens:,} tokens"),
            ("micro-batch", f"{self.micro_sequences:,} sequences = {self.micro_tokens:,} tokens"),
            ("accumulation", f"{self.accumulation:,} micro-batches per step"),
            ("data parallel", f"{self.dp:,} ranks on {self.gpus:,} GPUs"),
        ])  # fmt: skip
        if len(self.splits) > 1:
            yield table("legal splits", self.splits, words=0, bars=("accumulation",))


ANSWERS = (BatchAnswer,)


def batch_answer(
    seq: int, sequences: int | None, micro: int | None, accumulation: int | None, dp: int | None, tp: int, pp: int,
    cp: int, notes: Sequence[str] = (),
) -> BatchAnswer:  # fmt: skip
    batch = batch_of(seq=seq, global_batch=sequences, micro_batch=micro, accumulation=accumulation, dp=dp)
    others = [] if micro is not None else splits(batch.global_batch, batch.dp)[:MOST_SPLITS]
    return BatchAnswer(
        seq_tokens=batch.seq, global_sequences=batch.global_batch, global_tokens=batch.tokens,
        micro_sequences=batch.micro_batch, micro_tokens=batch.micro_tokens, accumulation=batch.accumulation,
        dp=batch.dp, tp=tp, pp=pp, cp=cp, gpus=batch.dp * tp * pp * cp,
        splits=[BatchSplit(micro_sequences=size, accumulation=times) for size, times in others],
        notes=[*notes, *_unfilled(batch.accumulation, pp)],
    )  # fmt: skip


def _unfilled(accumulation: int, pp: int) -> list[str]:
    if pp > 1 and accumulation < pp:
        return [f"{accumulation:,} micro-batches cannot fill {pp} pipeline stages: give each stage at least {pp}"]
    return []
