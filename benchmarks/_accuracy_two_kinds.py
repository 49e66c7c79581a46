"""Runs that are much slower than predicted by amounts that nothing in the tables explains."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import groupby

import numpy as np

from _accuracy_data import Rows, measured_rows, predictions
from _accuracy_tables import markdown, percent
from shardwise.software import stack_of
from shardwise.validate.interpret import Unsupported, measured_case
from shardwise.validate.predict import Prediction
from shardwise.validate.score import metrics, scored
from shardwise.validate.table import Measured

STAGED, CLUSTERED = "nanotron-ultrascale", "vTrain-multi"
SLOW_S = 0.15
"""a message this much longer than predicted marks a slow run: fast ones lie far below, slow ones far above"""
NEAR, FAR = 0.05, 0.09
CHARGES = tuple(percent / 100 for percent in range(1, 21))
LAYOUT = (("tp", "tp"), ("pp", "pp"), ("dp", "dp"), ("mb", "micro_batch"))


def two_kinds() -> str:
    """Paragraphs on both sources; empty where their rows are not at hand."""
    return _stalled() + _uneven()


def _stalled() -> str:
    quiet = _quiet()
    staged = [one for one in quiet if one.step_s and (one.measured.whole("pp") or 1) > 1]
    found = sorted((_nodes(one.measured), _wait(one)) for one in staged)
    if not found:
        return ""
    lines = []
    for nodes, runs in groupby(found, key=lambda pair: pair[0]):
        waits = np.array([wait for _, wait in runs])
        slow = waits > SLOW_S
        middle = f"{np.median(waits[slow]):.2f} s" if slow.any() else "-"
        lines.append([f"{nodes:g}", f"{len(waits)}", f"{int(slow.sum())}", percent(float(slow.mean())), middle])
    table = markdown(("nodes", "runs with stages", "slow", "share", "extra for each message"), lines)
    return (
        f"Runs of {STAGED} with pipeline stages come in two kinds: as predicted, or slower by about the same time for "
        "every message between stages, whatever the model, its split or the message. The stack counts it from 64 nodes "
        "on, where nearly every run shows it; below that nothing in the table tells which, but that "
        f"{_of_full(staged)}:\n\n" + table + "\n" + _without(quiet)
    )


def _of_full(staged: list[Prediction]) -> str:
    """How many of the smaller runs are slow, of those that should not fit and of the others."""
    small = [one for one in staged if _nodes(one.measured) < stack_of("nanotron").network.stalls_from_nodes]
    slow = {bad: [_wait(one) > SLOW_S for one in small if (one.verdict == "oom") == bad] for bad in (True, False)}
    counts = [f"{sum(found)} of {len(found)}" for found in slow.values()]
    return f"{counts[0]} runs that should not fit are slow, and {counts[1]} others"


def _without(quiet: list[Prediction]) -> str:
    """That rule was chosen on the rows it is scored on, so its share in the scores is told."""
    ruled = [p for p in predictions() if p.measured.word("source") == STAGED]
    told = [
        f"regret {found['regret'] or 0.0:.3f}, mean error {percent(found['mape'])}"
        for found in (metrics([p for p in part if scored(p)]) for part in (ruled, quiet))
    ]
    return f"The rule was chosen on these very rows. With it: {told[0]}; without it: {told[1]}.\n\n"


def _quiet() -> list[Prediction]:
    """Every run of the source, as it is predicted without that wait."""
    cases = []
    for row in measured_rows():
        if row.word("source") == STAGED:
            try:
                cases.append(measured_case(row))
            except Unsupported:
                continue
    return Rows(stack_of("nanotron"), tuple(cases)).predict({"stalled_transfer_s": 0.0})


def _nodes(row: Measured) -> float:
    return (row.number("gpus") or 8.0) / 8.0


def _wait(one: Prediction) -> float:
    """Seconds over the prediction, for each message a stage of the middle (or one of two) takes or sends."""
    row = one.measured
    pp, micro = row.number("pp") or 1.0, row.number("grad_accum") or 1.0
    messages = 2.0 * min(pp - 1.0, 2.0) * (micro + pp - 1.0)
    return ((row.number("step_seconds") or 0.0) - (one.step_s or 0.0)) / messages


def _uneven() -> str:
    rows = [p for p in predictions() if p.measured.word("source") == CLUSTERED and scored(p) and p.error is not None]
    if not rows:
        return ""
    split = [p for p in rows if p.measured.whole("tp") in (2, 4) and (p.measured.whole("dp") or 0) >= 16]
    others = [p for p in rows if p not in split]
    errors, rest = (np.array([p.error for p in part]) for part in (split, others))
    near, far = np.abs(errors) < NEAR, errors < -FAR
    return (
        f"Most runs of {CLUSTERED} with tensor parallelism of 2 or 4 and 16 or more replicas are slow, too: of "
        f"{len(errors)}, {int(near.sum())} lie within {percent(NEAR)} and {int(far.sum())} ran {percent(FAR)} to "
        f"{percent(float(-errors.min()))} slower than predicted, up and down with the micro-batch. Tensor parallelism "
        "of 1 and 8 over the same nodes, stages and messages shows nothing of it, nor does the larger model with fewer "
        f"replicas: the other {len(rest)} err by {percent(float(np.median(np.abs(rest))))} in the median. "
        f"{_in_stretches(rows)} What that does to regret:\n\n{_chosen(rows)}\n{_charged(rows, split)}\n"
    )


def _charged(rows: list[Prediction], slow: list[Prediction]) -> str:
    """What a rule would do that makes those runs slower by one share, whatever the share."""
    tried = {}
    for share in CHARGES:
        longer = [
            replace(p, tokens_per_s_per_gpu=(p.tokens_per_s_per_gpu or 0.0) / (1.0 + share * (p in slow))) for p in rows
        ]
        tried[share] = metrics(longer)
    regrets = {share: found["regret"] or 0.0 for share, found in tried.items()}
    least = min(tried, key=lambda share: tried[share]["mape"] or 1.0)
    return (
        f"Charging these runs one share more does not help the choice: from 1 to {percent(max(CHARGES))} regret is "
        f"{regrets[CHARGES[0]]:.3f} at best and falls to {min(regrets.values()):.3f}; at {percent(least)}, where the "
        f"mean error is least ({percent(tried[least]['mape'])}), it is {regrets[least]:.3f}.\n"
    )


def _in_stretches(rows: list[Prediction]) -> str:
    """How the slow runs of the largest job lie in the order in which a script goes through layouts."""
    swept = [p for p in rows if p.measured.whole("tp") in (2, 4)]
    jobs = Counter(p.measured.word("model") for p in swept)
    if not jobs:
        return "No cause was found."
    job = jobs.most_common(1)[0][0]
    runs = sorted((p for p in swept if p.measured.word("model") == job), key=_place_in_sweep)
    slow = [(p.error or 0.0) < -NEAR for p in runs]
    stretches = sum(key for key, _ in groupby(slow))
    return (
        f"Put in the order of a sweep over tp, pp and micro-batch, the {sum(slow)} slow ones of {job}'s {len(slow)} "
        f"runs with tp 2 and 4 lie in {stretches} unbroken stretches, and the micro-batch at which one ends differs "
        "from stage count to stage count. Slow hours would look so, but the order of the runs is not published, and "
        "that it is always these degrees speaks for something about them that is not modelled: the cause is not known."
    )


def _place_in_sweep(one: Prediction) -> tuple[int, ...]:
    return tuple(one.measured.whole(column) or 0 for column in ("tp", "pp", "micro_batch"))


def _chosen(rows: list[Prediction]) -> str:
    """For each job the layout predicted best, beside the one that was."""
    jobs: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
    for row in rows:
        jobs[row.measured.word("model"), row.measured.word("gpus")].append(row)
    lines, firsts = [], 0
    for (model, gpus), runs in jobs.items():
        chosen = max(runs, key=lambda p: p.tokens_per_s_per_gpu or 0.0)
        best = max(runs, key=lambda p: p.measured.tokens_per_s_per_gpu or 0.0)
        took, fastest = (p.measured.number("step_seconds") or 0.0 for p in (chosen, best))
        said = chosen.step_s or 0.0
        firsts += said <= fastest
        lines.append([f"{model}, {gpus} GPUs", _layout(chosen), f"{said:.2f} s", f"{took:.2f} s", _layout(best),
                      f"{fastest:.2f} s", f"{fastest / took:.3f}"])  # fmt: skip
    head = ("job", "predicted best", "predicted", "measured", "measured best", "measured", "reached")
    return (
        f"{markdown(head, lines, left=2)}\n"
        f"In {firsts} of {len(lines)} jobs the choice would have been the fastest, had it run at its predicted time.\n"
    )


def _layout(one: Prediction) -> str:
    return " ".join(f"{name}{one.measured.word(column)}" for name, column in LAYOUT)
