"""A Report as a small piece of HTML for a notebook: no script, no outside file."""

from html import escape

from shardwise.report.charts import PartsBar, parts_svg
from shardwise.report.report import Report
from shardwise.report.terminal import policy_text
from shardwise.units import gib, memory_text, time_text


def html_of(report: Report) -> str:
    facts = [
        ("policy", policy_text(report.policy)),
        ("verdict", report.verdict),
        ("step", time_text(report.step_s)),
        ("error", report.error_basis),
        ("tokens/s per GPU", f"{report.tokens_per_s_per_gpu:,.0f}"),
        ("MFU (causal half / whole square)", f"{report.mfu_causal_half:.1%} / {report.mfu_full_square:.1%}"),
        (
            "peak memory",
            f"{memory_text(report.peak_bytes)} of {gib(report.capacity_bytes)} GiB, stage {report.fullest_stage}",
        ),
    ]
    left = "style='text-align:left;white-space:normal'"
    rows = "".join(f"<tr><th {left}>{escape(n)}</th><td {left}>{escape(v)}</td></tr>" for n, v in facts)
    stage = report.stages[report.fullest_stage]
    kinds = [(kind, size, memory_text(size)) for kind, size in stage.kinds_bytes.items()]
    parts = [(part, seconds, time_text(seconds)) for part, seconds in report.time_s.items()]
    memory = parts_svg(PartsBar(f"memory of stage {stage.stage}", kinds, report.capacity_bytes))
    time = parts_svg(PartsBar("time of a step", parts, report.step_s))
    notes = "".join(f"<li>{escape(line)}</li>" for line in report.assumptions)
    return (
        f"<div><b>{escape(report.model)} on {escape(report.cluster)}</b><table>{rows}</table>"
        f"<div>{memory}</div><div>{time}</div>"
        f"<details><summary>assumptions</summary><ul>{notes}</ul></details></div>"
    )
