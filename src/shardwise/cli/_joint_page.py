"""What `shardwise plan --joint` prints, and the same as JSON."""

from typing import Any

import numpy as np

from shardwise.cli._joint import JointAnswer
from shardwise.cli._output import Cell, print_facts, print_gap, print_notes, print_table
from shardwise.report.terminal import policy_code
from shardwise.search.joint_study import JointResult
from shardwise.search.methods import points_text
from shardwise.search.problems.joint import Line
from shardwise.search.problems.joint._space import stage_table, told
from shardwise.units import time_text

SHOWN_TIMES = (0.1, 1.0, 10.0)
"""seconds after which the methods are compared"""


def show_joint(answer: JointAnswer) -> None:
    result = answer.result
    print_gap()
    if result.best.point is None:
        print_notes(["nothing fits, however the stages are filled"], title="everything at once")
        return
    facts: list[tuple[str, Cell]] = [("best", f"{_words(result.line)}: {_price(answer, result.objective)}")]
    first = result.problem.lines[0]
    if np.isfinite(result.plain):
        gain = result.gain or 0.0
        same = "nothing is better" if gain <= 1e-9 else f"{gain:+.1%} throughput"
        facts.append(("planned", f"{_words(first)}: {_price(answer, result.plain)}; {same}"))
    else:
        facts.append(("planned", "nothing fits with even stages"))
    facts.append(("bound", f"nothing is below {_price(answer, result.bound)}: {_proof(result)}"))
    if answer.timeline_s is not None:
        before, after = answer.timeline_s
        facts.append(("timeline", f"simulated {time_text(before)} as planned, {time_text(after)} now"))
    if result.placement is not None and result.placement.nodes:
        facts.append(("placement", f"saves {time_text(result.placement.saved_s)} of the step; --json names the nodes"))
    if answer.experts is not None and answer.experts.rank_of:
        facts.append(("experts", f"fullest rank {answer.experts.imbalance:.2f} x the mean, "
                                 f"{answer.experts.in_order:.2f} in order; --json has the map"))  # fmt: skip
    print_facts("everything at once", facts)
    if len(result.found.solutions) > 1:
        print_gap()
        _show_methods(answer)
    print_gap()
    table = stage_table(result.problem, result.point)
    print_table("stages", table.heads, table.rows, words=table.words)
    print_notes([f"{points_text(result.problem.points)} points, {len(result.problem.lines):,} policies with stages of "
                 "their own after bounds", *answer.notes])  # fmt: skip


def _words(line: Line) -> str:
    return line.what or policy_code(line.policy)


def _price(answer: JointAnswer, value: float) -> str:
    return time_text(value) if answer.objective == "s" else f"{value:.4g} USD a step"


def _proof(result: JointResult) -> str:
    return "proven" if result.gap <= 1e-9 else f"{result.gap:.1%} away"


def _show_methods(answer: JointAnswer) -> None:
    result, bound = answer.result, answer.result.bound
    heads = ["method", "objective", "above bound", *(f"after {t:g} s" for t in SHOWN_TIMES), "points", "s", "proven"]
    rows: list[list[Cell]] = []
    for name, found in result.found.solutions.items():
        at = [min((value for _, seconds, value in found.trace if seconds <= limit), default=None)
              for limit in SHOWN_TIMES]  # fmt: skip
        rows.append([
            name, _price(answer, found.objective_s) if found.point is not None else "none fits",
            f"{found.objective_s / bound - 1:.2%}" if found.point is not None and bound else None,
            *("-" if value is None else f"{value / bound - 1:.2%}" if bound else "-" for value in at),
            found.evaluations, f"{found.seconds:.3g}", "yes" if found.proven else "no",
        ])  # fmt: skip
    print_table("methods on the same problem; after so many seconds, above the bound", heads, rows)


def joint_data(answer: JointAnswer) -> dict[str, Any]:
    result = answer.result
    fits = result.best.point is not None
    placement = result.placement
    return {
        "objective": answer.objective, "fits": fits,
        "best_objective": result.objective if fits else None, "step_s": result.step_s if fits else None,
        "planned_objective": result.plain if np.isfinite(result.plain) else None,
        "planned": {"policy": result.problem.lines[0].policy, "what": result.problem.lines[0].what},
        "gain": result.gain if fits else None, "bound": result.bound,
        "gap": result.gap if fits and np.isfinite(result.gap) else None,
        "proven": bool(fits and result.gap <= 1e-9), "lines": len(result.problem.lines),
        "points": float(min(result.problem.points, 10**300)),
        "best": told(result.problem, result.point) if fits else None,
        "timeline": None if answer.timeline_s is None else
        {"planned_s": answer.timeline_s[0], "best_s": answer.timeline_s[1]},
        "placement": None if placement is None or not placement.nodes else
        {"node_box": placement.nodes, "saved_s": placement.saved_s, "network_before_s": placement.before_s,
         "network_after_s": placement.after_s},
        "experts": None if answer.experts is None or not answer.experts.rank_of else
        {"rank_of_expert": answer.experts.rank_of, "imbalance": answer.experts.imbalance,
         "in_order_imbalance": answer.experts.in_order},
        "methods": {
            name: {"objective": found.objective_s if found.point is not None else None, "bound": found.bound_s,
                   "evaluations": found.evaluations, "seconds": found.seconds, "proven": found.proven,
                   "trace": [(evaluations, value) for evaluations, _, value in found.trace],
                   "trace_s": [seconds for _, seconds, _ in found.trace]}
            for name, found in result.found.solutions.items()
        },
        "notes": answer.notes,
    }  # fmt: skip
