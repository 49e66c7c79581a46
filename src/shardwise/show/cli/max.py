"""`shardwise size --max`: the largest sequence, micro-batch or model that fits, and what is full beyond it."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.max import Growth, GrowthAxis, max_answer
from shardwise.question import Question
from shardwise.registry import closest
from shardwise.show.cli._flags import Flags, asked_openly, leave_out
from shardwise.show.cli._growth import batch_axis, grow, model_axis, sequence_axis
from shardwise.show.cli._options import Json, ModelName
from shardwise.show.cli._output import answered
from shardwise.spec.cluster import Cluster

WHAT = ("sequence", "batch", "model")


def max(  # the verb's own name
    what: Annotated[str, Parameter(help="sequence, batch (micro-batch) or model (layers).")],
    model: ModelName,
    /,
    flags: Flags,
    *,
    json: Json = False,
) -> int:
    """The largest sequence, micro-batch or number of layers that fits under the best policy."""
    if what not in WHAT:
        raise ValueError(
            f"max: {what!r} is unknown; {closest(what, list(WHAT))}; write for example: max sequence MODEL"
        )
    leave_out("max", "searches under the mean gradient and full sequences", flags, "sync", "lengths", "packing")
    case = asked_openly(model, flags.on, flags)
    cluster, notes = case.cluster, list(case.notes)
    axis = _axis(what, case, flags, cluster)
    found = grow(axis, cluster)
    notes = _notes(what, notes, case, axis, found)
    return answered(max_answer(what, case, axis, found, notes), json)


def _axis(what: str, case: Question, flags: Flags, cluster: Cluster) -> GrowthAxis:
    if case.model.inputs == "features" and what != "batch":
        raise ValueError(f"max: {what!r} of {case.model.name}, which reads single examples; write max batch")
    if what == "sequence":
        if case.model.sample_tokens:
            raise ValueError(
                f"max: every sample of {case.model.name} is {case.model.sample_tokens:,} tokens; write max batch or "
                "max model, or change image_size in its file"
            )
        if flags.seq is not None:
            raise ValueError(f"seq: {flags.seq!r} is the value searched for; leave --seq out")
        return sequence_axis(case, flags, cluster)
    return batch_axis(case, cluster) if what == "batch" else model_axis(case)


def _notes(what: str, notes: list[str], case: Question, axis: GrowthAxis, found: Growth) -> list[str]:
    if what == "sequence":
        notes = [n for n in notes if not n.startswith(("--seq", "--global-batch"))]
        notes.append("the tokens of a step stay about the same unless --global-batch says otherwise")
        if case.model.positions and (found.largest or 0) > case.model.positions:
            notes.append(f"{case.model.name} has {case.model.positions:,} learned positions: it needs a longer table")
    if what == "batch":
        notes.append("powers of two; the global batch is rounded up so that every data-parallel degree divides it")
    if what == "model":
        notes.append("layers are repeated or left out in the model's own order; widths stay")
    if not found.finished:
        notes.append("interrupted: larger ones were not all tried")
    if found.largest == axis.most:
        notes.append(f"{axis.most:,} {axis.unit} is the largest size tried")
    return notes
