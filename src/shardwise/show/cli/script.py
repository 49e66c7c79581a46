"""`shardwise run --share-gpu N -- SCRIPT`: a script for torchrun, on ranks that share this machine's GPU."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.measured.record.writer import say
from shardwise.show.cli._output import say_error
from shardwise.show.cli._torch import needs_torch


def script(
    *words: Annotated[str, Parameter(allow_leading_hyphen=True, help="SCRIPT.py or -m MODULE, and its own options.")],
    share_gpu: Annotated[int, Parameter(help="Ranks on this machine's first GPU, over NCCL.")],
) -> int:
    """Runs a script for torchrun on N ranks that share one GPU: NCCL takes each for a host of its own."""
    if not words:
        raise ValueError("script: nothing to run; write 'shardwise run --share-gpu 4 -- SCRIPT.py'")
    needs_torch("run --share-gpu")
    from shardwise.run.runtime.share_gpu import run_script, shared_gpu

    say(shared_gpu(share_gpu).text())
    code, why = run_script(words, share_gpu)
    if why:
        say_error(f"run: {why}")
    return code
