"""`shardwise stages`: which layers each pipeline stage should hold, and which of them recompute."""

from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.cli._flags import DOES_NOT_FIT, Flags, PolicyRequest, asked, refused
from shardwise.cli._options import Json
from shardwise.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise.report.terminal import policy_text
from shardwise.simulate.split import Split, Splits, best_split, simulate_split
from shardwise.units import gib, time_text


def stages(
    model: Annotated[str, Parameter(help="A catalog name, or a path to a Hugging Face config.json.")],
    /,
    flags: Flags,
    *,
    headroom: Annotated[float, Parameter(help="Share of a GPU's memory a stage may fill.")] = 1.0,
    json: Json = False,
) -> int:
    """The best layers for each stage, against the even split; each stage recomputes as many layers as it must."""
    ask = asked(model, flags)
    if refused(model, flags, ask, json):
        return DOES_NOT_FIT
    found = best_split(ask.model, ask.cluster, ask.job, ask.policy, ask.stack, headroom=headroom, profile=ask.profile)
    told = {name: _told(ask, split) for name, split in (("even", found.even), ("best", found.best)) if split}
    if json:
        print_json({"legal": True, "fits": found.best is not None, "model": ask.model.name, "policy": ask.policy,
                    "limit_bytes": found.limit_bytes, "even": told["even"], "best": told.get("best"),
                    "notes": ask.notes})  # fmt: skip
    else:
        _show(ask, found, told)
    return 0 if found.best is not None else DOES_NOT_FIT


def _told(ask: PolicyRequest, split: Split) -> dict[str, Any]:
    step = simulate_split(ask.model, ask.cluster, ask.job, ask.policy, ask.stack, split, ask.profile)
    return {
        "fits": split.fits, "layers": split.layers, "recomputed_layers": split.recomputed, "stage_s": split.stage_s,
        "peak_bytes": split.peak_bytes, "slowest_s": max(split.stage_s), "step_s": step.step_s,
    }  # fmt: skip


def _show(ask: PolicyRequest, found: Splits, told: dict[str, dict[str, Any]]) -> None:
    facts: list[tuple[str, str | int | float | None]] = [("policy", policy_text(ask.policy))]
    for name, split in told.items():
        fits = "" if split["fits"] else ", does not fit"
        facts.append((name, f"step {time_text(split['step_s'])}, slowest stage {time_text(split['slowest_s'])}{fits}"))
    if "best" in told:
        gain = told["even"]["step_s"] / told["best"]["step_s"] - 1.0
        facts.append(("gain", f"{gain:+.1%} throughput over the even split"))
    else:
        facts.append(("best", f"no split fits in {gib(found.limit_bytes)} GiB, even with every layer recomputed"))
    print_facts(f"{ask.model.name} on {ask.cluster.name}: layers of {ask.policy.pp} stages", facts)
    print_gap()
    best = found.best or found.even
    heads = ["stage", "even", "best", "recomputed", "even ms", "best ms", "even GiB", "best GiB"]
    rows = [
        (str(i), found.even.layers[i], best.layers[i], best.recomputed[i], f"{found.even.stage_s[i] * 1e3:,.1f}",
         f"{best.stage_s[i] * 1e3:,.1f}", gib(found.even.peak_bytes[i]), gib(best.peak_bytes[i]))
        for i in range(ask.policy.pp)
    ]  # fmt: skip
    print_table("layers, one micro-batch and peak memory of each stage", heads, rows)
    print_notes([
        *ask.notes,
        "--recompute is not used here: each stage recomputes as many whole layers as it must to fit, no more",
        f"limit {gib(found.limit_bytes)} GiB; the split is exact for (m - k) x slowest + k x all, steps are simulated",
    ])  # fmt: skip
