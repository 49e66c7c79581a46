"""`shardwise place`: which free nodes a policy takes, in which order, and what that does to the step."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.fabric.hostlist import hostlist
from shardwise.fabric.site import DOMAINS, Site
from shardwise.programs.exporters.node_files import FILES, PlacedJob, node_files, slurm_lines, slurm_wish
from shardwise.programs.importers.site_file import free_nodes, site_from
from shardwise.question import PolicyQuestion
from shardwise.question.studies.place import AxisGroups, NodeChoice, NodeOrder, choose_nodes
from shardwise.report.terminal import policy_code
from shardwise.report.tier import FLOW_LEVEL
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._flags import DOES_NOT_FIT, print_origin
from shardwise.show.cli._folder import check_folder, write_into
from shardwise.show.cli._options import ACTS, Json, PlanName
from shardwise.show.cli._output import print_facts, print_gap, print_json, print_notes, print_table
from shardwise.show.cli._plan_of import NO_PLAN_FLAGS, PlanFlags, cannot_run, question_of_words
from shardwise.step.estimate.band import NO_BAND, band_of
from shardwise.units import time_text

BUDGET = 4_000
"""placements: on 700 free nodes a search of 20,000 took a minute"""
AXIS_WORDS = {"tp": "tensor", "cp": "context", "ep": "expert", "dp": "data", "pp": "pipeline"}


def place(
    plan: PlanName,
    /,
    flags: PlanFlags = NO_PLAN_FLAGS,
    *,
    topology: Annotated[
        Path, Parameter(help="Slurm's topology.conf or .yaml, ibnetdiscover's output, UFM's JSON, or a nodes.csv.")
    ],
    free: Annotated[str, Parameter(help="Free nodes: 'node[001-016,020]', a file of names, or all.")] = "all",
    budget: Annotated[int, Parameter(help="Placements the search may price.")] = BUDGET,
    seed: Annotated[int, Parameter(help="Seed of the search: the same seed gives the same nodes.")] = 0,
    out: Annotated[Path | None, ACTS, Parameter(help="Folder for hostfile and the files of schedulers.")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """The nodes of a site for a policy, in the order of its ranks; step time with it and as the nodes are listed."""
    ask, _ = question_of_words(plan, flags)
    if out is not None:
        check_folder(out, FILES, "out", overwrite)
    site = site_from(topology)
    names = free_nodes(free, site)
    if cannot_run(plan, flags, ask, json, "place"):
        return DOES_NOT_FIT
    found = choose_nodes(ask.case, ask.policy, site, names, budget=budget, seed=seed)
    job = _job(site, found)
    files = node_files(job)
    if out is not None:
        write_into(out, ((name, text.encode()) for name, text in files.items()), "out", overwrite)
    if json:
        print_json(_data(ask, site, names, found, job, files, out))
    else:
        _show(ask, site, names, found, job, out)
    return 0


def _job(site: Site, found: NodeChoice) -> PlacedJob:
    at = site.numbers(found.chosen.nodes, "free")
    levels = {
        level.name: tuple(level.names[block] for block in level.block[at])
        for level in site.levels if level.name in found.blocks_used
    }  # fmt: skip
    return PlacedJob(found.chosen.nodes, found.node_gpus, levels, found.run, next(iter(levels)) in DOMAINS)


def _data(
    ask: PolicyQuestion, site: Site, free: list[str], found: NodeChoice, job: PlacedJob, files: dict[str, str],
    out: Path | None,
) -> dict[str, Any]:  # fmt: skip
    band = band_of(ask.case)
    return {
        "tier": FLOW_LEVEL, "model": ask.model.name, "cluster": ask.cluster.name, "gpus": ask.policy.gpus,
        "policy": ask.policy, "topology": site.form, "nodes_known": len(site.nodes), "nodes_free": len(free),
        "levels": {level.name: len(level.names) for level in site.levels},
        "error_range": None if band is None else (band.low, band.high),
        "error_basis": NO_BAND if band is None else str(band),
        "chosen": found.chosen.name, "nodes": found.chosen.nodes, "node_gpus": found.node_gpus,
        "step_s": found.chosen.step_s, "listed_step_s": found.listed.step_s, "blocks_used": found.blocks_used,
        "run_nodes": found.run,
        "orders": [
            {"name": order.name, "step_s": order.step_s, "communication_s": order.communication_s,
             "groups": order.groups} for order in found.orders
        ],
        "slurm": [*slurm_lines(job), f"#SBATCH {slurm_wish(job)}"],
        "files": {name: str(out / name) if out else text for name, text in files.items()},
        "policy_origin": ask.origin, "notes": [*ask.notes, *found.notes, *_assumed(found)],
    }  # fmt: skip


def _assumed(found: NodeChoice) -> list[str]:
    return [
        "steps at flow level on the site's own switches; the bandwidth of each level is the cluster's",
        "nothing else is on the fabric; equal paths are shared evenly",
        f"chosen among {', '.join(order.name for order in found.orders)} by the step",
    ]


def _show(
    ask: PolicyQuestion, site: Site, free: list[str], found: NodeChoice, job: PlacedJob, out: Path | None
) -> None:
    notes = print_origin(ask)
    chosen, listed = found.chosen, found.listed
    saved = 1.0 - chosen.step_s / listed.step_s
    took = f"{time_text(chosen.step_s)}, nodes {chosen.name}"
    if chosen is not listed:
        took += f"; {time_text(listed.step_s)} as they are listed ({-saved:+.1%})"
    used = ", ".join(f"{count} {name}" for name, count in found.blocks_used.items())
    facts = [
        ("policy", policy_code(ask.policy)), ("nodes", f"{len(chosen.nodes):,} of {len(free):,} free: {used}"),
        ("step", took), ("error", str(band_of(ask.case) or NO_BAND)), *_kept(chosen, listed),
        ("hosts", hostlist(chosen.nodes)), ("slurm", slurm_wish(job)),
    ]  # fmt: skip
    print_facts(f"{ask.model.name} on {ask.cluster.name}, {site.form} of {len(site.nodes):,} nodes", facts)
    print_gap()
    rows = [
        (order.name, f"{order.step_s:.4g}", f"{order.communication_s:.4g}", *_inside(order)) for order in found.orders
    ]
    heads = [f"{group.axis} groups in one {level}" for group in chosen.groups for level in list(group.inside)[:1]]
    print_table("orders tried", ["nodes", "step s", "network s", *heads], rows, bars=("step s", "network s"))
    if out is not None:
        print_gap()
        print(f"files: {out}/hostfile (in the order of the ranks), place.sbatch, kueue.yaml, volcano.yaml, ray.json")
    print_notes([*notes, *found.notes, *_assumed(found)])


def _inside(order: NodeOrder) -> list[str]:
    return [f"{group.inside[level]} of {group.groups}" for group in order.groups for level in list(group.inside)[:1]]


def _kept(chosen: NodeOrder, listed: NodeOrder) -> list[tuple[str, str]]:
    """One sentence: which groups stay together that would not."""
    before = {group.axis: group for group in listed.groups}
    gained = [group for group in chosen.groups if _more(group, before[group.axis])]
    if not gained:
        return []
    best = max(gained, key=lambda group: _more(group, before[group.axis]))
    level = next(iter(best.inside))
    told = "all" if best.inside[level] == best.groups else f"{best.inside[level]} of {best.groups}"
    return [
        ("why", f"{told} {AXIS_WORDS[best.axis]} groups stay in one {level}: {time_text(chosen.step_s)} a step; "
                f"{before[best.axis].inside[level]} of {best.groups} as listed: {time_text(listed.step_s)}")
    ]  # fmt: skip


def _more(group: AxisGroups, before: AxisGroups) -> float:
    level = next(iter(group.inside), None)
    return 0.0 if level is None else (group.inside[level] - before.inside[level]) / group.groups
