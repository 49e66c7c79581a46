"""`--lengths` and `--packing`: what a step takes over sequences as long as the data has them."""

from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from shardwise.case import Case
from shardwise.cli._groups import JOB
from shardwise.cli._output import print_notes
from shardwise.estimate.lengths import LengthsReport, lengths_report
from shardwise.spec.lengths import lengths_of
from shardwise.spec.policy import Policy
from shardwise.units import share_text, time_text

LengthsName = Annotated[
    str | None,
    Parameter(
        name="--lengths",
        group=JOB,
        help="Of the sequences: a file with a length on each line, or lognormal,mean=600,sigma=1; --seq cuts them.",
    ),
]
Packing = Annotated[
    str | None, Parameter(group=JOB, help="With --lengths: on (several in a buffer of --seq tokens) or off (padded).")
]

TOLD = 0.0005
"""a smaller share is none"""


def asked_lengths(case: Case, policy: Policy, lengths: str | None, packing: str | None) -> LengthsReport | None:
    if packing not in (None, "on", "off"):
        raise ValueError(f"packing: {packing!r} is unknown; write on or off")
    if lengths is None:
        if packing is not None:
            raise ValueError(f"packing: {packing} of sequences of one length; write --lengths with it")
        return None
    if case.model.inputs == "features":
        raise ValueError(f"lengths: {case.model.name} reads single examples; leave --lengths out")
    if any(layer.tokens for layer in case.model.kinds):
        raise ValueError(f"lengths: {case.model.name} has towers with tokens of their own; leave --lengths out")
    return lengths_report(case, policy, lengths_of(lengths))


def lengths_data(found: LengthsReport, packing: str | None) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(found)
    chosen = found.packed_step_s if packing == "on" else found.padded_step_s
    return data | {"packing_saves": found.packing_saves, "packing": packing == "on", "step_s": chosen}


def _saved(share: float) -> str:
    if abs(share) < TOLD:
        return "saves nothing"
    return f"{'saves' if share > 0 else 'costs'} {share_text(abs(share))}"


def print_lengths(found: LengthsReport, gpus: int, packing: str | None) -> None:
    chosen = found.packed_step_s if packing == "on" else found.padded_step_s
    lines = [
        f"{found.name}: mean {found.mean_tokens:,.0f}, median {found.median_tokens:,.0f}, longest "
        f"{found.longest_tokens:,} tokens; {found.step_tokens:,.0f} tokens of data per step",
        f"step {time_text(chosen)} {'packed' if packing == 'on' else 'padded'}, "
        f"{found.step_tokens / chosen / gpus:,.0f} tokens of data/s per GPU; {time_text(found.longest_step_s)} if all "
        "were as long as --seq",
        f"padding {share_text(found.padding)} of tokens; the slowest data-parallel rank of a step takes "
        f"{share_text(found.padded_waiting)} longer than the mean",
        f"packing {_saved(found.packing_saves)} of that step: "
        f"{time_text(found.packed_step_s)}, {found.sequences_per_buffer:,.3g} sequences in a buffer that is "
        f"{share_text(found.filled)} full; the slowest rank +{share_text(found.packed_waiting)}, by the squares of "
        "attention",
        "memory above is of sequences as long as --seq: one such sequence is enough to need it",
    ]
    print_notes(lines, title="with the lengths of the data")
