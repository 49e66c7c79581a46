"""Options under the names other programs have for them, so that an unknown one can say what it is called here."""

from cyclopts.exceptions import UnknownOptionError

CALLED_HERE = {
    **dict.fromkeys(("--days", "--deadline", "--duration"), "--within"),
    **dict.fromkeys(("--gpu", "--gpus", "--cluster", "--hardware", "--nodes"), "--on"),
    **dict.fromkeys(("--batch", "--batch-size", "--gbs", "--global-batch-size"), "--global-batch"),
    **dict.fromkeys(("--mbs", "--micro-batch", "--micro-batch-size"), "--micro"),
    **dict.fromkeys(("--seq-len", "--seq-length", "--sequence-length", "--context", "--max-seq-len"), "--seq"),
    **dict.fromkeys(("--tensor-parallel", "--tensor-model-parallel-size"), "--tp"),
    **dict.fromkeys(("--pipeline-parallel", "--pipeline-model-parallel-size"), "--pp"),
    **dict.fromkeys(("--context-parallel", "--context-parallel-size"), "--cp"),
    **dict.fromkeys(("--expert-parallel", "--expert-model-parallel-size"), "--ep"),
    **dict.fromkeys(("--data-parallel", "--data-parallel-size"), "--dp"),
    **dict.fromkeys(("--zero-stage", "--fsdp"), "--zero"),
    **dict.fromkeys(("--dtype", "--fp8", "--bf16"), "--precision"),
    **dict.fromkeys(("--framework", "--software", "--program"), "--stack"),
    **dict.fromkeys(("--activation-checkpointing", "--gradient-checkpointing"), "--recompute"),
    **dict.fromkeys(("--lr", "--learning-rate"), "--rate"),
    **dict.fromkeys(("--output", "--output-dir"), "--out"),
}

TAKEN_BY = dict.fromkeys(("--lengths", "--packing"), "estimate, plan, compare and sweep")
"""options of some verbs only that one may look for in others"""


def taken_elsewhere(problem: UnknownOptionError) -> str | None:
    """The verbs that have what was written."""
    return TAKEN_BY.get((problem.token.keyword or problem.token.value).partition("=")[0])


def called_here(problem: UnknownOptionError) -> str | None:
    """The verb's own option for what was written, if it has one."""
    written = (problem.token.keyword or problem.token.value).partition("=")[0]
    name = CALLED_HERE.get(written)
    offered = {name for argument in problem.argument_collection for name in argument.names}
    return name if name in offered else None
