"""A Report as a small piece of HTML for a notebook: no script, no outside file."""

from collections.abc import Callable, Mapping
from html import escape

from shardwise.report.report import Report
from shardwise.report.terminal import policy_text
from shardwise.units import gib, memory_text, time_text

COLOURS = ("#4477aa", "#66ccee", "#aa3377", "#228833", "#ccbb44", "#99aadd", "#88bb66", "#77cccc", "#bbbbbb",
           "#ee6677", "#bb7733", "#997700", "#555577", "#cc99cc")  # fmt: skip


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
    rows = "".join(f"<tr><th style='text-align:left'>{escape(n)}</th><td>{escape(v)}</td></tr>" for n, v in facts)
    stage = report.stages[report.fullest_stage]
    memory = _bar(stage.kinds_bytes, report.capacity_bytes, memory_text)
    time = _bar(report.time_s, report.step_s, time_text)
    notes = "".join(f"<li>{escape(line)}</li>" for line in report.assumptions)
    return (
        f"<div><b>{escape(report.model)} on {escape(report.cluster)}</b><table>{rows}</table>"
        f"<div>memory of stage {stage.stage}</div>{memory}<div>time of a step</div>{time}"
        f"<details><summary>assumptions</summary><ul>{notes}</ul></details></div>"
    )


def _bar(parts: Mapping[str, float], whole: float, text: Callable[[float], str]) -> str:
    shown = [(name, value, COLOURS[i % len(COLOURS)]) for i, (name, value) in enumerate(parts.items()) if value > 0]
    scale = 100.0 / max(whole, sum(value for _, value, _ in shown))
    pieces = "".join(
        f"<div title='{escape(f'{name}: {text(value)}')}' "
        f"style='width:{value * scale:.2f}%;background:{colour};height:1.2em'></div>"
        for name, value, colour in shown
    )
    legend = " ".join(f"<span style='color:{colour}'>&#9632;</span> {escape(name)}" for name, _, colour in shown)
    return (
        "<div style='display:flex;width:40em;max-width:100%;background:#eee'>"
        f"{pieces}</div><div style='font-size:85%'>{legend}</div>"
    )
