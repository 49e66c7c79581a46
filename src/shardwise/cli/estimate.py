"""`shardwise estimate`: one policy - memory, time, utilization, traffic, cost, and whether it can run at all."""

from dataclasses import asdict

from shardwise.cli._evidence import Evidence, evidence_data, evidence_of, print_evidence
from shardwise.cli._flags import DOES_NOT_FIT, Flags, asked, on_of, print_origin, refused
from shardwise.cli._html import drawn
from shardwise.cli._lengths import lengths_data, over_data, print_lengths
from shardwise.cli._options import Json, ModelName
from shardwise.cli._output import print_json, print_notes
from shardwise.cli._that_fit import print_that_fit, that_fit_data
from shardwise.estimate.deciding import deciding_numbers, uneven_groups
from shardwise.plan.nearest import nearest_run
from shardwise.plan.that_fit import policies_that_fit
from shardwise.report.terminal import show
from shardwise.studies.build import report_of


def estimate(
    model: ModelName,
    /,
    flags: Flags,
    *,
    evidence: Evidence = 0,
    json: Json = False,
) -> int:
    """One policy, the recommended one where none is stated: memory by kind and stage, step time by part, MFU, traffic,
    cost, verdict."""
    ask = asked(model, flags)
    choice = ask.lengths
    if refused(model, on_of(flags), ask, json):
        return DOES_NOT_FIT
    report = report_of(ask.case, ask.policy)
    over = ask.host_refusal(report.host_bytes * ask.cluster.node_size)
    of_data = over_data(ask.case, ask.policy, choice)
    deciding, uneven = deciding_numbers(ask.case, ask.policy), uneven_groups(ask.case, ask.policy)
    fitting = [] if report.fits else policies_that_fit(ask.case, ask.policy)
    measured = evidence_of(ask.case, ask.policy, evidence)
    if json:
        told = [
            {"setting": n.setting, "value": n.value, "default": n.default, "share": n.share, "origin": str(n.origin)}
            for n in deciding
        ]
        decided = {"deciding_numbers": told, "uneven_groups": asdict(uneven) if uneven else None}
        like = nearest_run(ask.case, ask.policy)
        near = {"host_fits": not over, "that_fit": that_fit_data(fitting, report.step_s),
                "nearest_run": str(like), "doublings_from_it": like.distance}  # fmt: skip
        near |= {"evidence": evidence_data(measured)} if evidence else {}
        lengths = {"lengths": lengths_data(of_data, choice.packing)} if of_data and choice else {}
        about = {"policy_origin": ask.origin, "notes": ask.notes}
        print_json({"legal": True} | report.to_dict() | decided | near | lengths | about)
    else:
        notes = print_origin(ask)
        with drawn(report._repr_html_):
            show(report)
        print_evidence(measured)
        if of_data is not None and choice is not None:
            print_lengths(of_data, ask.policy, choice.packing)
        print_notes([str(number) for number in deciding], title="numbers that decide more than 5% of this step")
        print_notes([str(uneven)] if uneven else [], title="the place of ranks decides more than 5% of this step")
        print_notes([over] if over else [], title="does not fit on the host")
        if not report.fits:
            print_that_fit(ask.case, ask.policy, fitting, report.step_s)
        print_notes(notes)
    return 0 if report.fits and not over else DOES_NOT_FIT
