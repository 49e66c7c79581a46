"""Where the time of a rank's step went: every moment belongs to exactly one part, so that the parts add up to it."""

import re
from dataclasses import dataclass

import numpy as np

from shardwise.measured.diagnose.axes import cause_of, place_of
from shardwise.measured.diagnose.device_trace import NO_RANGES, RankTrace
from shardwise.measured.diagnose.intervals import NOTHING, Times, common, joined, length, minus, union, within
from shardwise.spec.policy import Policy

FAMILIES = (
    ("attention", re.compile(r"flash|fmha|attention|sdpa", re.IGNORECASE)),
    (
        "products",
        re.compile(r"gemm|nvjet|cutlass|xmma|cublas|Cijk_|wgmma|aten::(?:add|baddb|b)?mm|linear", re.IGNORECASE),
    ),
    ("optimizer", re.compile(r"adam|multi_tensor|optimizer|foreach", re.IGNORECASE)),
    ("norms and softmax", re.compile(r"norm|softmax", re.IGNORECASE)),
)
"""of kernels, by their names"""
ARITHMETIC = ("attention", "products")
"""of these families: bound by what the GPU computes, not by its memory"""
SHORT_S = 1e-6
"""between two kernels a GPU needs so long of itself"""


@dataclass(frozen=True)
class Occupancy:
    """Of one rank, in seconds of one step."""

    rank: str
    step_s: float
    steps: int
    parts: dict[str, float]
    """cause -> seconds; they add up to step_s"""
    hidden: dict[str, float]
    """communication that ran under compute"""
    ops: dict[str, str]
    """cause -> the collective it mostly is"""
    families: dict[str, float]
    """kind of kernel -> seconds, each kernel for itself"""
    syncs: float
    """calls a step in which the host waited for the GPU"""


def occupancy_of(
    trace: RankTrace, policy: Policy | None, steps: int | None = None, waits: Times = NOTHING
) -> Occupancy:
    """`waits`: when the rank stood in a collective that others had not reached; `steps`: in the trace, where it has no
    marks of its own."""
    begin, end, count = trace.window(steps)
    compute = within(_spans(trace, trace.of_kind("compute")), begin, end)
    waiting = minus(within(waits, begin, end), compute)
    taken = joined(compute, waiting)
    found = {"compute": length(compute), "wait": length(waiting)}
    hidden: dict[str, float] = {}
    ops: dict[str, str] = {}
    for code, (rows, op) in _by_cause(trace, policy).items():
        mine = within(_spans(trace, rows), begin, end)
        exposed = minus(mine, taken)
        found[code] = found.get(code, 0.0) + length(exposed)
        hidden[code], ops[code] = length(mine) - length(minus(mine, compute)), op
        taken = joined(taken, exposed)
    copies = minus(within(_spans(trace, trace.of_kind("copy")), begin, end), taken)
    found["copy"] = length(copies)
    taken = joined(taken, copies)
    idle = minus((np.array([begin]), np.array([end])), taken)
    for kind in ("checkpoint", "data"):
        busy = trace.host.get(kind, NO_RANGES)
        mine = common(idle, union(busy.start_s, busy.end_s))
        found[kind], idle = length(mine), minus(idle, mine)
    late = _launched_late(trace, idle)
    found["host"] = length(late)
    # a stage that was asked to work and stands still waits for another; a pipeline's messages are not always seen
    rest = "bubble" if policy is not None and policy.pp > 1 and _tells_launches(trace) else "idle"
    found[rest] = found.get(rest, 0.0) + length(minus(idle, late))
    calls = trace.host.get("sync", NO_RANGES)
    inside = int(((calls.start_s >= begin) & (calls.start_s < end)).sum())
    return Occupancy(
        rank=_called(trace, policy), step_s=(end - begin) / count, steps=count,
        parts={code: seconds / count for code, seconds in found.items() if seconds > 0},
        hidden={code: seconds / count for code, seconds in hidden.items() if seconds > 0}, ops=ops,
        families=_families(trace, begin, end, count), syncs=inside / count,
    )  # fmt: skip


def _spans(trace: RankTrace, rows: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Times:
    return union(trace.start_s[rows], trace.end_s[rows])


def _by_cause(trace: RankTrace, policy: Policy | None
              ) -> dict[str, tuple["np.ndarray[tuple[int], np.dtype[np.bool_]]", str]]:  # fmt: skip
    """cause -> which spans, and what they mostly do."""
    codes = [cause_of(name, policy) if name.kind == "comm" else "" for name in trace.names]
    found: dict[str, tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], str]] = {}
    for code in dict.fromkeys(each for each in codes if each):
        known = np.array([each == code for each in codes])
        rows = known[trace.what]
        seconds: dict[str, float] = {}
        for index in np.flatnonzero(known).tolist():
            mine = trace.what == index
            op = trace.names[index].op
            seconds[op] = seconds.get(op, 0.0) + float((trace.end_s[mine] - trace.start_s[mine]).sum())
        found[code] = rows, max(seconds, key=lambda op: seconds[op], default="")
    return found


def _called(trace: RankTrace, policy: Policy | None) -> str:
    if policy is None or trace.rank is None or trace.simulated or trace.rank >= policy.gpus:
        return trace.called
    place = place_of(trace.rank, policy)
    return f"{trace.called} ({place})" if place else trace.called


def _families(trace: RankTrace, begin: float, end: float, steps: int) -> dict[str, float]:
    inside = np.clip(trace.end_s, begin, end) - np.clip(trace.start_s, begin, end)
    by_name = np.bincount(trace.what, weights=inside, minlength=len(trace.names))
    found: dict[str, float] = {}
    for name, seconds in zip(trace.names, by_name.tolist(), strict=True):
        if name.kind == "compute":
            known = name.name if trace.simulated else "element-wise and others"
            family = next((each for each, form in FAMILIES if form.search(name.name)), known)
            found[family] = found.get(family, 0.0) + seconds / steps
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def _tells_launches(trace: RankTrace) -> bool:
    return trace.simulated or bool(np.isfinite(trace.launched_s).any())


def _launched_late(trace: RankTrace, idle: Times) -> Times:
    """Of the idle time: what ends with a kernel that the host asked for only after the device had run dry."""
    if not len(idle[0]) or not np.isfinite(trace.launched_s).any():
        return NOTHING
    place = np.searchsorted(trace.start_s, idle[1] - SHORT_S / 2)
    place = np.minimum(place, len(trace.start_s) - 1)
    launched = trace.launched_s[place]
    # where no launch is known (a graph, a copy), the time of the kernel before it tells nothing either
    late = np.isfinite(launched) & (launched > idle[0] - SHORT_S)
    return idle[0][late], idle[1][late]
