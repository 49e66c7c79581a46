"""Shows results in a notebook: each type as HTML, registered by name, so that none of them knows of it.

`import shardwise` in a notebook is enough; `%load_ext shardwise` does the same.
"""

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardwise.plan.exhaustive import Ranking
    from shardwise.report.fabric_report import FabricReport
    from shardwise.spec.cluster import Cluster
    from shardwise.spec.gpu import Gpu
    from shardwise.spec.model import Model
    from shardwise.spec.policy import Policy
    from shardwise.spec.rules import Verdict
    from shardwise.step.simulate.timeline import Timeline

SHOWN = 10


def _page(title: str, facts: Iterable[tuple[str, str]], *more: str) -> str:
    left = 'style="text-align:left"'
    rows = "".join(f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(text)}</td></tr>" for name, text in facts)
    return f"<div><b>{escape(title)}</b><table>{rows}</table>{''.join(more)}</div>"


def _bars(title: str, found: Mapping[str, tuple[float, str]]) -> str:
    from shardwise.report.charts import AmountBars, AmountRow, amounts_svg

    rows = [AmountRow(name, [size], [words]) for name, (size, words) in found.items()]
    return amounts_svg(AmountBars(title, [title], rows))


def ranking_html(found: "Ranking") -> str:
    from shardwise.answers._plan_rows import RankedPolicy
    from shardwise.answers.answer import table, text_of
    from shardwise.report.charts import chart_svg
    from shardwise.report.plan_figure import plan_chart
    from shardwise.report.result_page import html_list, html_table
    from shardwise.report.terminal import policy_code
    from shardwise.units import gib, time_text

    if not found.best:
        small = found.smallest
        near = "none" if small is None else f"{policy_code(small.policy)} needs {gib(small.peak_bytes)} GiB"
        return _page("nothing fits", [("policies", f"{found.points:,} legal"), ("the smallest", near)])
    taken = found.recommended or found.best[0]
    facts = [
        ("take", f"{policy_code(taken.policy)}: {time_text(taken.step_s)}, {gib(taken.peak_bytes)} GiB"),
        ("policies", f"{found.points:,} legal, memory up to {gib(found.limit_bytes)} GiB may be filled"),
    ]
    points = [(policy_code(each.policy), each.tokens_per_s_per_gpu, each.peak_bytes) for each in found.best]
    figure = chart_svg(plan_chart("the fastest policies", points, found.limit_bytes, policy_code(taken.policy)))
    rows = table("", found.best[:SHOWN], row=RankedPolicy, sparse=True)
    lost = [f"{loser.kind}: {loser.why} ({policy_code(loser.policy)})" for loser in found.losers]
    shown = html_table(rows.heads, [[text_of(cell) for cell in row] for row in rows.rows])
    return _page("policies by step time", facts, figure, shown, "<b>why others lose</b>", html_list(lost))


def model_html(model: "Model") -> str:
    from shardwise.spec.arch.tensors import active_parameters, matmul_parameters, parameters

    counted = {"all": parameters(model), "active for a token": active_parameters(model),
               "in GEMMs": matmul_parameters(model)}  # fmt: skip
    facts = [("family", model.family), ("layers", f"{model.layers}"), ("hidden", f"{model.hidden:,}"),
             ("classes" if model.head_once else "vocabulary", f"{model.vocab:,}")]  # fmt: skip
    return _page(model.name, facts, _bars("parameters", {name: (size, f"{size:,}") for name, size in counted.items()}))


def gpu_html(gpu: "Gpu") -> str:
    facts = [
        ("memory", f"{gpu.memory_bytes / 2**30:.1f} GiB at {gpu.memory_bandwidth / 1e12:.3g} TB/s"),
        ("power", f"{gpu.power_watts:,.0f} W"), ("source", f"{gpu.source}, {gpu.date}"),
    ]  # fmt: skip
    rates = {dtype: (rate, f"{rate / 1e12:,.4g}") for dtype, rate in gpu.peak_flops.items()}
    return _page(f"{gpu.name} ({gpu.vendor} {gpu.architecture})", facts, _bars("peak, dense TFLOP/s", rates))


def cluster_html(cluster: "Cluster") -> str:
    facts = [("GPUs", f"{cluster.gpus:,} x {cluster.gpu.name}"), ("source", cluster.source)]
    rates = {level.name: (level.usable_bandwidth, f"{level.usable_bandwidth / 1e9:,.4g}") for level in cluster.levels}
    return _page(cluster.name, facts, _bars("GB/s of a GPU, each way, by level", rates))


def policy_html(policy: "Policy") -> str:
    from shardwise.report.terminal import policy_code, policy_text

    return _page(policy_code(policy), [("GPUs", f"{policy.gpus:,}"), ("says", policy_text(policy))])


def verdict_html(found: "Verdict") -> str:
    from shardwise.report.terminal import policy_text

    if found.legal:
        return _page("can run", [])
    near = "none on this cluster" if found.cure is None else policy_text(found.cure)
    return _page("cannot run", [("rule", found.rule), ("because", found.why), ("nearest that can", near)])


def timeline_html(timeline: "Timeline") -> str:
    from shardwise.report.timeline_figure import timeline_svg

    return timeline_svg(timeline, title="one step")


def fabric_html(report: "FabricReport") -> str:
    from shardwise.report.charts import chart_svg
    from shardwise.report.fabric_figures import series_chart
    from shardwise.report.terminal import policy_text
    from shardwise.units import time_text

    facts = [("policy", policy_text(report.policy)), ("step", time_text(report.step_s))]
    if report.bottleneck is not None:
        facts.append(("bottleneck", f"{report.bottleneck.link}: {report.bottleneck.why}"))
    figure = chart_svg(series_chart(report, time_text(report.step_s)))
    return _page(f"{report.model} on {report.cluster}: one step on the network", facts, figure)


SHOWN_AS: dict[tuple[str, str], Callable[[Any], str]] = {
    ("shardwise.plan.exhaustive", "Ranking"): ranking_html,
    ("shardwise.spec.model", "Model"): model_html,
    ("shardwise.spec.gpu", "Gpu"): gpu_html,
    ("shardwise.spec.cluster", "Cluster"): cluster_html,
    ("shardwise.spec.policy", "Policy"): policy_html,
    ("shardwise.spec.rules", "Verdict"): verdict_html,
    ("shardwise.step.simulate.timeline", "Timeline"): timeline_html,
    ("shardwise.report.fabric_report", "FabricReport"): fabric_html,
}
"""by module and name; a `Report` shows itself"""


def register(shell: Any) -> None:
    """`shell`: what IPython's `get_ipython()` gives."""
    formatter = shell.display_formatter.formatters["text/html"]
    for (module, name), show in SHOWN_AS.items():
        formatter.for_type_by_name(module, name, show)
