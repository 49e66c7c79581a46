"""`shardwise calc mfu`: one throughput, every convention of utilization."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.mfu import MEANING, mfu_answer
from shardwise.question.job import sequence_of
from shardwise.show.cli import _notes
from shardwise.show.cli._options import Explain, Json, Seq
from shardwise.show.cli._output import answered
from shardwise.show.cli._target import gpu_from, known_dtype, missing_dtype
from shardwise.spec.arch import model_of
from shardwise.units import count_of, seconds_of


def mfu(
    model: Annotated[str, Parameter(help="Catalog name, or a path to a Hugging Face config.json.")],
    /,
    *,
    on: Annotated[str, Parameter(help="GPU (h100) or cluster (dgx-h100:1024) whose peak counts.")],
    tps: Annotated[
        float | None, Parameter(help="Tokens per second and GPU. Or give --tokens, --gpus and --time.")
    ] = None,
    tokens: Annotated[str | None, Parameter(help="Tokens trained on, such as 300B.")] = None,
    gpus: Annotated[int | None, Parameter(help="GPUs that trained.")] = None,
    time: Annotated[str | None, Parameter(help="How long, such as '35 d'.")] = None,
    seq: Seq = None,
    recompute: Annotated[str, Parameter(help="none, selective or full: recompute in the backward pass.")] = "none",
    dtype: Annotated[str, Parameter(help="dtype of the peak.")] = "bf16",
    explain: Explain = False,
    json: Json = False,
) -> int:
    """Utilization of a run by each convention in use, side by side."""
    shape, gpu, notes = model_of(model), gpu_from(on), list[str]()
    length = sequence_of(shape, seq, notes)
    notes += ["extra prediction layers (MTP) are not counted, as in published sizes"] if shape.mtp_layers else []
    notes += [*missing_dtype(gpu, dtype), MEANING, *(_notes.on_model(shape.name) if explain else ())]
    return answered(
        mfu_answer(
            shape, gpu, known_dtype(dtype), length, recompute, tokens_per_s=tps,
            tokens=None if tokens is None else count_of(tokens, "tokens"), gpus=gpus,
            seconds=None if time is None else seconds_of(time, "time"), notes=notes,
        ),
        json,
    )  # fmt: skip
