"""`shardwise estimate`: one policy - memory, time, utilization, traffic, cost, and whether it can run at all."""

from dataclasses import asdict, replace
from typing import Annotated

from cyclopts import Parameter

from shardwise.cli._flags import DOES_NOT_FIT, Flags, asked, refused
from shardwise.cli._job import Tokens
from shardwise.cli._options import Json
from shardwise.cli._output import print_json, print_notes
from shardwise.cli._synced import SyncName, with_sync
from shardwise.estimate.deciding import deciding_numbers, uneven_groups
from shardwise.report.terminal import show
from shardwise.studies.build import report_of


def estimate(
    model: Annotated[str, Parameter(help="A catalog name, a Hugging Face id, or a path to a config.json.")],
    /,
    flags: Flags,
    *,
    sync: SyncName = None,
    tokens: Tokens = None,
    json: Json = False,
) -> int:
    """One policy: memory by kind and stage, step time by part, MFU, traffic, cost, verdict."""
    ask = asked(model, flags, tokens)
    ask = replace(ask, policy=with_sync(ask.policy, sync))
    if refused(model, flags, ask, json):
        return DOES_NOT_FIT
    report = report_of(ask.case, ask.policy)
    deciding, uneven = deciding_numbers(ask.case, ask.policy), uneven_groups(ask.case, ask.policy)
    if json:
        told = [
            {"setting": n.setting, "value": n.value, "default": n.default, "share": n.share, "origin": str(n.origin)}
            for n in deciding
        ]
        decided = {"deciding_numbers": told, "uneven_groups": asdict(uneven) if uneven else None}
        print_json({"legal": True} | report.to_dict() | decided | {"notes": ask.notes})
    else:
        show(report)
        print_notes([str(number) for number in deciding], title="numbers that decide more than 5% of this step")
        print_notes([str(uneven)] if uneven else [], title="the place of ranks decides more than 5% of this step")
        print_notes(ask.notes)
    return 0 if report.fits else DOES_NOT_FIT
