"""`shardwise search stages`: which layers each pipeline stage should hold, and which of them recompute."""

from typing import Any

from shardwise.arrays import Ints
from shardwise.plan.search.methods import method_of
from shardwise.plan.search.problems import GpuGroup, StageProblem, stage_problem
from shardwise.plan.that_fit import policies_that_fit
from shardwise.question import PolicyQuestion
from shardwise.report.terminal import policy_text
from shardwise.show.cli._flags import DOES_NOT_FIT, Flags, asked, leave_out, on_of, print_origin, refused
from shardwise.show.cli._options import Json, ModelName
from shardwise.show.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise.show.cli._that_fit import print_that_fit, that_fit_data
from shardwise.spec.policy import Policy
from shardwise.step.simulate.split import simulate_split
from shardwise.units import gib, time_text
from shardwise.work.case import Case

MOST_PATHS = 10**6


def stages(
    model: ModelName,
    /,
    flags: Flags,
    *,
    json: Json = False,
) -> int:
    """The best layers for each stage, against the even split; each stage recomputes as many layers as it must."""
    leave_out("stages", "prices steps with the mean gradient over full sequences", flags, "sync", "lengths", "packing")
    ask = asked(model, flags)
    if refused(model, on_of(flags), ask, json, "search stages"):
        return DOES_NOT_FIT
    case = ask.case
    problem = stage_problem([GpuGroup(case, ask.policy.pp)], ask.policy, headroom=flags.headroom or 1.0)
    found = method_of("dp").solve(problem, budget_evaluations=MOST_PATHS)
    both = {"even": problem.default, "best": found.point}
    told = {name: _told(case, ask.policy, problem, point) for name, point in both.items() if point is not None}
    limit = problem.options[0].limit_bytes
    nearest = policies_that_fit(case, ask.policy) if found.point is None else []
    if json:
        print_json({"legal": True, "fits": found.point is not None, "proven": found.proven, "model": ask.model.name,
                    "cluster": ask.cluster.name, "stack": ask.stack.name, "seq_tokens": ask.job.seq,
                    "global_sequences": ask.job.global_batch, "precision": ask.job.precision.name,
                    "optimizer": ask.job.optimizer.name, "policy": ask.policy, "policy_origin": ask.origin,
                    "limit_bytes": limit,
                    "even": told["even"], "best": told.get("best"),
                    "that_fit": that_fit_data(nearest, told["even"]["closed_form_step_s"]),
                    "notes": ask.notes})  # fmt: skip
    else:
        _show(ask, limit, told, found.proven)
        if found.point is None:
            print_that_fit(case, ask.policy, nearest, told["even"]["closed_form_step_s"])
    return 0 if found.point is not None else DOES_NOT_FIT


def _told(case: Case, policy: Policy, problem: StageProblem, point: Ints) -> dict[str, Any]:
    held, priced = problem.assignment(point), problem.price(point[None])
    step = simulate_split(case, policy, held.layers, held.recomputed)
    return {
        "fits": bool(priced.over[0] == 0), "layers": held.layers, "recomputed_layers": held.recomputed,
        "stage_s": held.stage_s, "peak_bytes": held.peak_bytes, "slowest_s": max(held.stage_s), "step_s": step.step_s,
        "closed_form_step_s": float(priced.seconds[0]),
    }  # fmt: skip


def _show(ask: PolicyQuestion, limit: float, told: dict[str, dict[str, Any]], proven: bool) -> None:
    notes = print_origin(ask)
    facts: list[tuple[str, str | int | float | None]] = [("policy", policy_text(ask.policy))]
    for name, split in told.items():
        fits = "" if split["fits"] else ", does not fit"
        facts.append((name, f"step {time_text(split['step_s'])}, slowest stage {time_text(split['slowest_s'])}{fits}"))
    if "best" in told:
        gain = told["even"]["step_s"] / told["best"]["step_s"] - 1.0
        facts.append(("gain", f"{gain:+.1%} throughput over the even split"))
    else:
        facts.append(("best", f"no split fits in {gib(limit)} GiB, even with every layer recomputed"))
    print_facts(f"{ask.model.name} on {ask.cluster.name}: layers of {ask.policy.pp} stages", facts)
    print_gap()
    even, best = told["even"], told.get("best", told["even"])
    heads = ["stage", "even", "best", "recomputed", "even ms", "best ms", "even GiB", "best GiB"]
    rows = [
        (str(i), even["layers"][i], best["layers"][i], best["recomputed_layers"][i], f"{even['stage_s'][i] * 1e3:,.1f}",
         f"{best['stage_s'][i] * 1e3:,.1f}", gib(even["peak_bytes"][i]), gib(best["peak_bytes"][i]))
        for i in range(ask.policy.pp)
    ]  # fmt: skip
    print_table("layers, one micro-batch and peak memory of each stage", heads, rows, bars=("even ms", "best ms"))
    print_notes([
        *notes,
        "--recompute is not used here: each stage recomputes as many whole layers as it must to fit, no more",
        f"limit {gib(limit)} GiB; the split is {'exact' if proven else 'the best found'} for "
        "(m - k) x slowest + k x all, steps are simulated",
    ])  # fmt: skip
