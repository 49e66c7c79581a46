"""`shardwise search stages`: which layers each pipeline stage should hold, and which of them recompute."""

from shardwise.answers.stages import stages_answer
from shardwise.show.cli._flags import DOES_NOT_FIT, Flags, asked, leave_out, on_of, refused
from shardwise.show.cli._options import Json, ModelName
from shardwise.show.cli._output import answered


def stages(model: ModelName, /, flags: Flags, *, json: Json = False) -> int:
    """The best layers for each stage, against the even split; each stage recomputes as many layers as it must."""
    leave_out("stages", "prices steps with the mean gradient over full sequences", flags, "sync", "lengths", "packing")
    ask = asked(model, flags)
    if refused(model, on_of(flags), ask, json, "search stages"):
        return DOES_NOT_FIT
    return answered(stages_answer(ask, flags.headroom or 1.0), json)
