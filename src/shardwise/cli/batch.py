"""`shardwise batch`: global = micro-batch x accumulation x data parallel, solved for what is missing."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.cli._options import Json
from shardwise.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise.estimate.batch import Batch, batch_of, data_parallel, splits
from shardwise.question.job import batch_sequences
from shardwise.units import in_full, sequence_tokens

SHOWN_SPLITS = 12


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
) -> None:
    """What equals what: global batch = micro-batch x accumulation x data-parallel ranks."""
    length = sequence_tokens(seq, "seq")
    notes = in_full(seq, length)
    ranks = _ranks(dp, gpus, tp, pp, cp)
    sequences = None if global_ is None or length < 1 else batch_sequences(global_, length, notes, "global")
    found = batch_of(seq=length, global_batch=sequences, micro_batch=micro, accumulation=accumulation, dp=ranks)
    others = [] if micro is not None else splits(found.global_batch, found.dp)[:SHOWN_SPLITS]
    notes += _notes(found, pp)
    if json:
        print_json(
            {
                "seq_tokens": found.seq, "global_sequences": found.global_batch, "global_tokens": found.tokens,
                "micro_sequences": found.micro_batch, "micro_tokens": found.micro_tokens,
                "accumulation": found.accumulation, "dp": found.dp, "tp": tp, "pp": pp, "cp": cp,
                "gpus": found.dp * tp * pp * cp,
                "splits": [{"micro_sequences": m, "accumulation": a} for m, a in others], "notes": notes,
            }
        )  # fmt: skip
        return
    _show(found, tp * pp * cp, others, notes)


def _show(found: Batch, model_gpus: int, others: list[tuple[int, int]], notes: list[str]) -> None:
    product = f"micro {found.micro_batch:,} x accumulation {found.accumulation:,} x dp {found.dp:,}"
    print_facts(
        f"global {found.global_batch:,} = {product}",
        [
            ("sequence", f"{found.seq:,} tokens"),
            ("global batch", f"{found.global_batch:,} sequences = {found.tokens:,} tokens"),
            ("micro-batch", f"{found.micro_batch:,} sequences = {found.micro_tokens:,} tokens"),
            ("accumulation", f"{found.accumulation:,} micro-batches per step"),
            ("data parallel", f"{found.dp:,} ranks on {found.dp * model_gpus:,} GPUs"),
        ],
    )
    if len(others) > 1:
        print_gap()
        print_table("legal splits", ["micro-batch", "accumulation"], others, words=0, bars=("accumulation",))
    print_notes(notes)


def _ranks(dp: int | None, gpus: int | None, tp: int, pp: int, cp: int) -> int | None:
    if gpus is None:
        return dp
    ranks = data_parallel(gpus, tp=tp, pp=pp, cp=cp)
    if dp is not None and dp != ranks:
        raise ValueError(
            f"dp: {dp:,} given, but gpus {gpus:,} / (tp {tp} x pp {pp} x cp {cp}) = {ranks:,}; write --dp {ranks}"
        )
    return ranks


def _notes(found: Batch, pp: int) -> list[str]:
    if pp > 1 and found.accumulation < pp:
        return [f"{found.accumulation:,} micro-batches cannot fill {pp} pipeline stages: give each stage at least {pp}"]
    return []
