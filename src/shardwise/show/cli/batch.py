"""`shardwise calc batch`: global = micro-batch x accumulation x data parallel, solved for what is missing."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.batch import batch_answer
from shardwise.question.job import batch_sequences
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered
from shardwise.step.estimate.batch import data_parallel
from shardwise.units import in_full, sequence_tokens


def batch(
    *,
    seq: Annotated[str, Parameter(help="Sequence length, such as 4096 or 8k (8,192).")],
    global_: Annotated[
        str | None, Parameter(name="--global", help="Global batch: '4M tokens', or a number of sequences.")
    ] = None,
    micro: Annotated[int | None, Parameter(help="Sequences per micro-batch.")] = None,
    accumulation: Annotated[int | None, Parameter(help="Micro-batches per step and rank.")] = None,
    dp: Annotated[int | None, Parameter(help="Data-parallel ranks; or give --gpus and the other degrees.")] = None,
    gpus: Annotated[int | None, Parameter(help="GPUs in all; dp = gpus / (tp x pp x cp).")] = None,
    tp: Annotated[int, Parameter(help="Tensor-parallel degree.")] = 1,
    pp: Annotated[int, Parameter(help="Pipeline stages.")] = 1,
    cp: Annotated[int, Parameter(help="Context-parallel degree.")] = 1,
    json: Json = False,
) -> int:
    """Global batch = micro-batch x accumulation x data-parallel ranks, solved for what is missing."""
    length = sequence_tokens(seq, "seq")
    notes = in_full(seq, length)
    ranks = _ranks(dp, gpus, tp, pp, cp)
    sequences = None if global_ is None or length < 1 else batch_sequences(global_, length, notes, "global")
    answer = batch_answer(length, sequences, micro, accumulation, ranks, tp, pp, cp, notes)
    return answered(answer, json)


def _ranks(dp: int | None, gpus: int | None, tp: int, pp: int, cp: int) -> int | None:
    if gpus is None:
        return dp
    ranks = data_parallel(gpus, tp=tp, pp=pp, cp=cp)
    if dp is not None and dp != ranks:
        raise ValueError(
            f"dp: {dp:,} given, but gpus {gpus:,} / (tp {tp} x pp {pp} x cp {cp}) = {ranks:,}; write --dp {ranks}"
        )
    return ranks
