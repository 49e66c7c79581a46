"""`shardwise verify`: a split of the user's own model, run on ranks of this machine and held against one process."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec import structs

from shardwise.answers.prove import prove_answer
from shardwise.fields import read_file
from shardwise.run.auto.plan import AutoPlan, Degrees, degrees_of, plan_file
from shardwise.show.cli._options import Json, within
from shardwise.show.cli._output import answered
from shardwise.show.cli._share_gpu import ShareGpu, sharing
from shardwise.show.cli._torch import needs_torch

MOST_RANKS, MOST_STEPS, MOST_BYTES = 16, 1000, 2**24
DTYPES = ("float64", "float32")


def prove(
    script: Annotated[Path, Parameter(help="Your Python file with build, batch and step; its code is run.")],
    plan: Annotated[
        str,
        Parameter(help="fsdp=2,tp=2 (also pp, vpp, schedule, cp, ep, sp, micro, recompute, offload), or a plan file."),
    ],
    /,
    *,
    ranks: Annotated[
        int | None, Parameter(help="Ranks on this machine; FSDP takes those the plan leaves. Default: the plan's.")
    ] = None,
    steps: Annotated[int, Parameter(help="Training steps to compare."), within(2, MOST_STEPS)] = 20,
    dtype: Annotated[str, Parameter(help="float64: equal to 1e-9; float32: to 1e-5.")] = "float64",
    share_gpu: ShareGpu = 0,
    json: Json = False,
) -> int:
    """Losses and the gradient of every parameter of a split model, equal to one process?"""
    stated = plan_file(Path(plan)) if "=" not in plan and plan != "recompute" else None
    degrees = _filled(degrees_of(plan) if stated is None else stated.degrees, ranks)
    if dtype not in DTYPES:
        raise ValueError(f"dtype: {dtype!r} is unknown; write {' or '.join(DTYPES)}")
    read_file(script, "script", MOST_BYTES, "the path of a Python file")  # before torch takes its seconds
    needs_torch("prove")
    if share_gpu:
        sharing(share_gpu, degrees.ranks, "cuda")
    from shardwise.run.auto.on_gpu import proven_on_gpu
    from shardwise.run.auto.prove import plan_of, proven
    from shardwise.run.auto.script import opened, program_in
    from shardwise.run.auto.truth import truth_of

    with opened(script) as (read, names):
        program = program_in(read, names, steps, dtype)

        def planned() -> AutoPlan:
            return plan_of(program, degrees) if stated is None else structs.replace(stated, degrees=degrees)

        if share_gpu:
            proof, found = proven_on_gpu(program, degrees.ranks, planned)
        else:
            truth, found = truth_of(program), planned()
            proof = proven(program, found, truth)
    return answered(prove_answer(script.name, proof, found), json)


def _filled(degrees: Degrees, ranks: int | None) -> Degrees:
    """FSDP over the ranks that are left."""
    if ranks is None:
        ranks = degrees.ranks
    if not 1 <= ranks <= MOST_RANKS:
        raise ValueError(f"ranks: {ranks} is out of range; write 1 to {MOST_RANKS}, they are processes of this machine")
    others = degrees.ranks // degrees.dp
    if ranks % degrees.ranks or (degrees.dp > 1 and ranks != degrees.ranks):
        raise ValueError(
            f"ranks: {ranks} is not what {degrees.text} takes; write --ranks {degrees.ranks} or another plan"
        )
    return structs.replace(degrees, dp=ranks // others)
