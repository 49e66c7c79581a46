"""`shardwise place`: which free nodes a policy takes, in which order, and what that does to the step."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.place import place_answer
from shardwise.fabric.site import DOMAINS, Site
from shardwise.programs.exporters.node_files import FILES, PlacedJob, node_files
from shardwise.programs.importers.site_file import free_nodes, site_from
from shardwise.question.studies.place import NodeChoice, choose_nodes
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._flags import DOES_NOT_FIT
from shardwise.show.cli._folder import check_folder, write_into
from shardwise.show.cli._options import ACTS, Json, PlanName
from shardwise.show.cli._output import answered
from shardwise.show.cli._plan_of import NO_PLAN_FLAGS, PlanFlags, cannot_run, question_of_words

BUDGET = 4_000
"""placements: on 700 free nodes a search of 20,000 took a minute"""


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
        files = {name: str(out / name) for name in files}
    return answered(place_answer(ask, site, len(names), found, job, files, None if out is None else str(out)), json)


def _job(site: Site, found: NodeChoice) -> PlacedJob:
    at = site.numbers(found.chosen.nodes, "free")
    levels = {
        level.name: tuple(level.names[block] for block in level.block[at])
        for level in site.levels if level.name in found.blocks_used
    }  # fmt: skip
    return PlacedJob(found.chosen.nodes, found.node_gpus, levels, found.run, next(iter(levels)) in DOMAINS)
