"""`--lengths` and `--packing`: what a step takes over sequences as long as the data has them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from shardwise.answers.answer import Cell, Notes, Table
from shardwise.spec.lengths import PACKINGS, LengthsChoice
from shardwise.spec.policy import Policy
from shardwise.units import share_text, time_text
from shardwise.work.case import Case

if TYPE_CHECKING:
    from shardwise.step.estimate.lengths import LengthsReport

HOW = {"off": "padded", "on": "packed", "dynamic": "packed, with dynamic context parallelism"}
MORE = 0.0005
"""a smaller share is none"""


def over_data(case: Case, policy: Policy, choice: LengthsChoice | None) -> "LengthsReport | None":
    if choice is None:
        return None
    from shardwise.step.estimate.lengths import lengths_report  # most answers are of full sequences

    return lengths_report(case, policy, choice.lengths)


def lengths_data(found: "LengthsReport", packing: str) -> Mapping[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(found, str_keys=True)
    saved = {"packing_saves": found.packing_saves, "dynamic_saves": found.dynamic_saves}
    return data | saved | {"packing": packing, "step_s": found.step_s(packing), "waiting": found.waiting(packing)}


def lengths_notes(found: "LengthsReport", policy: Policy, packing: str) -> Notes:
    chosen = found.step_s(packing)
    rate = found.step_tokens / chosen / policy.gpus
    cut = f", {share_text(found.cut)} of sequences cut there" if found.cut >= MORE else ""
    lines = [
        f"{found.name}: mean {found.mean_tokens:,.0f}, median {found.median_tokens:,.0f}, longest "
        f"{found.longest_tokens:,} tokens{cut}; {found.step_tokens:,.0f} tokens of data per step",
        f"step {time_text(chosen)} {HOW[packing]}, {rate:,.0f} tokens of data/s per GPU; "
        f"{time_text(found.longest_step_s)} if all were as long as --seq",
        f"padding {share_text(found.padding)} of tokens; the slowest data-parallel rank of a step takes "
        f"{share_text(found.padded_waiting)} longer than the mean",
        f"packing {_saved(found.packing_saves)} of that step: {time_text(found.packed_step_s)}, "
        f"{found.sequences_per_buffer:,.3g} sequences in a buffer that is {share_text(found.filled)} full; "
        f"{_packed_waiting(found, policy)}",
        *([_dynamic(found)] if policy.cp > 1 or packing == "dynamic" else []),
        "memory above is of sequences as long as --seq: one such sequence is enough to need it",
    ]
    return Notes(lines, "with the lengths of the data")


def _saved(share: float) -> str:
    if abs(share) < MORE:
        return "saves nothing"
    return f"{'saves' if share > 0 else 'costs'} {share_text(abs(share))}"


def _packed_waiting(found: "LengthsReport", policy: Policy) -> str:
    waiting = f"the slowest rank +{share_text(found.packed_waiting)}"
    if found.buffers < policy.dp:
        return f"{waiting}: {found.buffers:,.0f} buffers are too few for {policy.dp:,} ranks, raise --global-batch"
    return f"{waiting}, by the squares of attention and the last buffers"


def _dynamic(found: "LengthsReport") -> str:
    shares = sorted(found.dynamic_shares.items())
    shared = [f"{share_text(share)} on {size} rank{'s'[: size > 1]}" for size, share in shares if share > 0]
    return (
        f"dynamic context parallelism {_saved(found.dynamic_saves)} of the packed step: "
        f"{time_text(found.dynamic_step_s)}; of the sequences {', '.join(shared)}; the slowest rank "
        f"+{share_text(found.dynamic_waiting)}"
    )


def lengths_table(found: "dict[str, tuple[LengthsReport, int]]", choice: LengthsChoice) -> Table:
    """Cases side by side: each with its report and its GPUs."""
    heads = ["case", "padded s", "wait %", "packed s", "wait %", "dynamic s", "wait %", "tok/s", "diff"]
    rows, first = list[list[Cell]](), None
    for name, (report, gpus) in found.items():
        rate = report.step_tokens / report.step_s(choice.packing) / gpus
        cells = [f(packing) for packing in PACKINGS for f in (_seconds_of(report), _waiting_of(report))]
        rows.append([name, *cells, f"{rate:,.0f}", None if first is None else f"{100 * (rate / first - 1):+.1f}%"])
        first = first or rate
    return Table(f"with the lengths of the data ({choice.lengths.name}), tok/s {HOW[choice.packing]}", heads, rows)


def _seconds_of(report: "LengthsReport") -> Callable[[str], str]:
    return lambda packing: f"{report.step_s(packing):.4g}"


def _waiting_of(report: "LengthsReport") -> Callable[[str], str]:
    return lambda packing: share_text(report.waiting(packing)).rstrip("%")
