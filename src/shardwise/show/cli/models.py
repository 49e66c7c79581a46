"""`shardwise catalog models`: the model catalog, or one model in full."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.models import model_answer, models_answer
from shardwise.show.cli import _notes
from shardwise.show.cli._options import Explain, Json
from shardwise.show.cli._output import answered
from shardwise.spec.arch import model_of
from shardwise.spec.load import gpu_of


def models(
    name: Annotated[
        str | None, Parameter(help="A catalog name, a Hugging Face id, or a path to a config.json.")
    ] = None,
    /,
    *,
    gpu: Annotated[str, Parameter(help="GPU that the training state is counted on.")] = "h100",
    explain: Explain = False,
    json: Json = False,
) -> int:
    """The models shardwise knows, or everything about one of them."""
    if name is None:
        return answered(models_answer(), json)
    model = model_of(name)
    notes = [*model.notes, *(_notes.on_model(model.name) if explain else [])]
    return answered(model_answer(model, gpu_of(gpu), notes), json)
