"""`shardwise calc collective`: one collective on one cluster: data sheet, fitted time, algorithms, switches."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.collective import CollectiveQuestion, collective_answer
from shardwise.show.cli import _notes
from shardwise.show.cli._array import array_bytes
from shardwise.show.cli._groups import CLUSTER
from shardwise.show.cli._options import Explain, Json
from shardwise.show.cli._output import answered
from shardwise.show.cli._target import target_of

H100_GATHER = 2 * 1024 * 16384
"""bytes of the array in a widely read exercise"""


def collective(
    op: Annotated[str, Parameter(help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send.")],
    array: Annotated[str, Parameter(help="The array: bf16[1024,16384], or its bytes: '33.5 MB'.")],
    /,
    *,
    on: Annotated[str, Parameter(group=CLUSTER, help="dgx-h100:1024, 8xh100 or a YAML file: all its GPUs take part.")],
    inner: Annotated[int, Parameter(help="Ways an inner axis cuts the array: groups of ranks that far apart.")] = 1,
    sharp: Annotated[bool, Parameter(help="The network's switches add, where they can.")] = False,
    nvls: Annotated[bool, Parameter(negative="--no-nvls", help="NVLink's switches add, where they can.")] = True,
    explain: Explain = False,
    json: Json = False,
) -> int:
    """One collective: what the data sheet allows, what it takes, by which algorithm, through which switches."""
    cluster, size = target_of(on), array_bytes(array)
    question = CollectiveQuestion(op, size, cluster, inner, sharp, nvls)
    return answered(collective_answer(question, _errata(question) if explain else []), json)


def _errata(question: CollectiveQuestion) -> list[str]:
    printed = question.op == "all_gather" and question.bytes == H100_GATHER
    return [_notes.ALL_GATHER] if printed and (question.cluster.gpus, question.cluster.gpu.name) == (8, "h100") else []
