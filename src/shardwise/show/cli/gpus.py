"""`shardwise catalog gpus`: the GPU catalog, or one GPU in full."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.gpus import gpu_answer, gpus_answer
from shardwise.show.cli import _notes
from shardwise.show.cli._options import Explain, Json
from shardwise.show.cli._output import answered
from shardwise.spec.load import gpu_of


def gpus(
    name: Annotated[str | None, Parameter(help="A GPU of the catalog, by name or alias.")] = None,
    /,
    *,
    chip: Annotated[bool, Parameter(negative=(), help="Also its parts: cores, registers, links, switches.")] = False,
    explain: Explain = False,
    json: Json = False,
) -> int:
    """The GPUs shardwise knows: peaks, memory, links, power, price."""
    if name is None:
        if chip:
            raise ValueError("chip: the parts of one GPU are shown; write its name, such as 'catalog gpus h100 --chip'")
        return answered(gpus_answer(), json)
    gpu = gpu_of(name)
    return answered(gpu_answer(gpu, _notes.on_gpu(gpu.name, gpu.architecture) if explain else (), chip=chip), json)
