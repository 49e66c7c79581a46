"""The figure of a simulated step and the schedules it was compared with, as one HTML file without script."""

from collections.abc import Sequence
from html import escape

from shardwise.step.simulate.outcome import ScheduleOutcome
from shardwise.units import gib, time_text

MARK = '<meta name="generator" content="shardwise"/>'
"""in the head of every page"""
STYLE = """
:root { --bg: #f4f6f8; --surface: #fff; --line: #dde2e8; --ink: #1a1f25; --muted: #566069; --accent: #2f659c;
  --bad: #b5101c; --soft: #e6eff8; --shadow: 0 1px 2px rgb(20 30 40 / 6%), 0 4px 16px rgb(20 30 40 / 5%);
  color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --bg: #0f1216; --surface: #181c22; --line: #2d343d; --ink: #e9ecf0;
  --muted: #a5aeb9; --accent: #86b6e6; --bad: #ff8f96; --soft: #1d2f42; --shadow: 0 4px 16px rgb(0 0 0 / 30%); } }
body { margin: 0 auto; max-width: 1280px; padding: 20px; background: var(--bg); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif; }
h2 { margin: 16px 24px 8px; font-size: 18px; }
table { margin: 0 24px; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 18px 5px 0; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 10px; }
tr:last-child td { border-bottom: 0; }
th { color: var(--muted); font-weight: 600; font-size: 13px; }
tr.shown td { background: var(--soft); font-weight: 600; }
td.over { color: var(--bad); }
ul { margin: 12px 24px; padding-left: 20px; color: var(--muted); }
@media print { svg, tr, li { break-inside: avoid; } h2 { break-after: avoid; } body { max-width: none; } }
"""
HEADS = ("schedule", "chunks", "step", "bubble", "peak GiB", "closed form")


def timeline_page(
    svg: str, rows: Sequence[ScheduleOutcome], *, title: str, shown: str, limit_bytes: float | None = None
) -> str:
    """`shown`: the schedule the figure draws."""
    heads = "".join(f"<th>{head}</th>" for head in HEADS)
    lines = "\n".join(_line(row, row.schedule == shown, limit_bytes) for row in rows if row.step_s is not None)
    refused = "\n".join(
        f"<li>{escape(row.schedule)} cannot run this: {escape(row.why_not)}</li>" for row in rows if row.step_s is None
    )
    notes = f"<ul>\n{refused}\n</ul>" if refused else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"/>{MARK}<title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n{svg}<h2>The same policy under every schedule, no stragglers</h2>\n"
        f"<table>\n<tr>{heads}</tr>\n{lines}\n</table>\n{notes}\n</body>\n</html>\n"
    )


def _line(row: ScheduleOutcome, shown: bool, limit_bytes: float | None) -> str:
    peak = row.peak_bytes or 0.0
    over = ' class="over" title="does not fit"' if limit_bytes is not None and peak > limit_bytes else ""
    mark = ' class="shown"' if shown else ""
    return (
        f"<tr{mark}><td>{escape(row.schedule)}</td><td>{row.vpp}</td>"
        f"<td>{time_text(row.step_s or 0.0)}</td><td>{row.bubble_share or 0.0:.1%}</td><td{over}>{gib(peak)}</td>"
        f"<td>{time_text(row.closed_form_s or 0.0)}</td></tr>"
    )
