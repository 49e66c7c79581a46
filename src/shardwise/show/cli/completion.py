"""`shardwise --completion SHELL`: a script that lets the shell complete verbs and options."""

from typing import Annotated, Literal

from cyclopts import Parameter

from shardwise.answers.completion import CompletionAnswer
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered
from shardwise.show.cli._shown import show_all


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Which shell the script is for.")],
    /,
    *,
    json: Json = False,
) -> int:
    """Shell completion: eval "$(shardwise --completion bash)", or keep the script where the shell looks for it."""
    from shardwise.show.cli._frame import app  # which names this module
    from shardwise.show.cli._installed import add_verb, installed_verbs

    for verb in installed_verbs():
        add_verb(app, verb)

    show_all(True)  # a shell completes rare options too
    script = app.generate_completion(shell=shell)
    return answered(CompletionAnswer(shell=shell, script=script), json)
