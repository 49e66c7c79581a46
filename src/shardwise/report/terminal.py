"""A Report as a terminal page, 80 columns wide; letters carry what colours show, so nothing is lost without them."""

import re
from collections.abc import Iterable, Mapping

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shardwise.report.report import Money, Report, Stage
from shardwise.report.sync_report import SyncReport
from shardwise.spec.pipeline import usual_schedule
from shardwise.spec.policy import Policy
from shardwise.units import gib, share_text, size_unit, time_text

BAR = 50
LETTERS = {
    "parameters": ("P", "blue"), "gradients": ("G", "cyan"), "optimizer": ("O", "magenta"),
    "activations": ("A", "green"), "logits": ("L", "yellow"), "gathered": ("F", "bright_blue"),
    "working": ("W", "bright_green"), "buffers": ("B", "bright_cyan"), "overhead": ("x", "bright_black"),
    "sync": ("S", "red"),
}  # fmt: skip
OFFLOAD_CODES = {"optimizer": "off-opt", "activations": "off-act", "both": "off-all"}
CODES = {
    "dp": "data parallel", "tp": "tensor parallel", "pp": "pipeline stages", "vpp": "chunks per stage",
    "cp": "context parallel", "ep": "expert parallel", "etp": "tensor parallel inside experts",
    "z": "ZeRO stage (z1/8: shared by 8 ranks)", "mb": "sequences per micro-batch",
    "full": "full recompute (full5: of 5 layers of each stage)", "selective": "selective recompute",
    "off-opt": "optimizer on the host", "off-act": "activations on the host",
    "off-all": "optimizer and activations on the host", "nosp": "no sequence parallelism",
    "tp-cp-dp-pp": "axes on neighbouring ranks, innermost first",
}  # fmt: skip
"""what the letters of `policy_code` stand for"""
CODE_FORMS = {
    "z": r"z\d",
    "full": r"full\d*$",
    "selective": r"selective\d*$",
    "off-opt": "off-opt",
    "off-act": "off-act",
    "off-all": "off-all",
    "nosp": "nosp$",
    "tp-cp-dp-pp": r"[a-z]+-[a-z]+-[a-z]+-[a-z]+$",
}
"""how the others than degrees look"""
MOST_STAGES = 12
SHORT_S = 0.01
"""steps below this are shown in microseconds"""
SMALL_BYTES = 1e6
"""traffic below this is shown in kB"""
DAY = 86400.0
MILLION = 1e6
WHOLE_DOLLARS = 100.0
"""amounts below are told with cents"""
SHOWN_SHARE = 0.0005
"""parts of a step below this share are left out of the page (JSON has them)"""


def show(report: Report, console: Console | None = None) -> None:
    out = console or Console(markup=False, highlight=False, emoji=False)
    out.print(_head(report))
    out.print()
    _titled(out, "memory of one GPU by stage", _memory(report))
    out.print(_legend(report))
    out.print()
    _titled(out, "time of one step", _time(report))
    hidden = ", ".join(f"{axis} {time_text(s)}" for axis, s in report.hidden_s.items() if s > 0)
    if hidden:
        out.print(f"hidden under compute: {hidden}")
    if any(sent for levels in report.traffic_bytes.values() for sent in levels.values()):
        out.print()
        name, scale = _traffic_unit(report)
        _titled(out, f"sent by an average GPU in one step, {name}", _traffic(report, scale))
    out.print()
    _titled(out, "energy and cost", _money(report))
    out.print("\nassumptions:")
    out.print(_lines(report.assumptions))


def _titled(out: Console, title: str, table: Table) -> None:
    """The title on a line of its own: a table's own title wraps at the table's width."""
    out.print(Text(title, style="bold"))
    out.print(table)


def policy_text(policy: Policy) -> str:
    """The settings that differ from doing nothing, in one short line."""
    words = [f"{axis} {getattr(policy, axis)}" for axis in ("dp", "tp", "pp", "cp", "ep", "etp")
             if axis == "dp" or getattr(policy, axis) > 1]  # fmt: skip
    if policy.vpp > 1:
        words.append(f"vpp {policy.vpp}")
    if _unusual_schedule(policy):
        words.append(f"schedule {policy.schedule}")
    words += [f"zero {policy.zero}", f"micro {policy.micro_batch}"]
    if policy.shard_group:
        words.append(f"shard group {policy.shard_group}")
    if policy.recompute != "none":
        some = f" ({policy.recompute_layers} layers)" if policy.recompute_layers >= 0 else ""
        of = f" of {' and '.join(policy.recompute_modules)}" if policy.recompute_modules else ""
        words.append(f"recompute {policy.recompute}{some}{of}")
    if policy.offload != "none":
        words.append(f"offload {policy.offload}{_part(policy)}")
    if policy.loss:
        words.append(f"{policy.loss} loss")
    if policy.tp > 1 and not policy.sp:
        words.append("no sequence parallelism")
    if policy.order != Policy().order:
        words.append(f"order {policy.order}")
    if policy.sync:
        words.append(f"sync {policy.sync}")
    return ", ".join(words)


def _part(policy: Policy) -> str:
    return "" if policy.offload_share == 1 else f" {policy.offload_share:.0%}"


def policy_code(policy: Policy) -> str:
    """The same for a narrow table: 'dp64 tp4 pp4 vpp10 z1 mb1'; 'z3/8' shards over 8 ranks, 'full5' recomputes 5
    layers of each stage."""
    words = [f"{axis}{getattr(policy, axis)}" for axis in ("dp", "tp", "pp", "vpp", "cp", "ep", "etp")
             if axis == "dp" or getattr(policy, axis) > 1]  # fmt: skip
    words.append(f"z{policy.zero}/{policy.shard_group}" if policy.shard_group else f"z{policy.zero}")
    words.append(f"mb{policy.micro_batch}")
    if policy.recompute != "none":
        words.append(policy.recompute + (str(policy.recompute_layers) if policy.recompute_layers >= 0 else ""))
    words += policy.recompute_modules
    if policy.offload != "none":
        words.append(OFFLOAD_CODES[policy.offload] + _part(policy).strip())
    if policy.loss:
        words.append(policy.loss)
    if policy.tp > 1 and not policy.sp:
        words.append("nosp")
    if _unusual_schedule(policy):
        words.append(policy.schedule)
    if policy.order != Policy().order:
        words.append(policy.order)
    if policy.sync:
        words.append(policy.sync.replace(",", " "))
    return " ".join(words)


def legend_of(policies: Iterable[Policy]) -> str:
    """What the codes in these policies mean: of those that are there, each once."""
    there = list(policies)
    words = {word for policy in there for word in policy_code(policy).split()}
    found = [
        f"{code} {meaning}"
        for code, meaning in CODES.items()
        if any(re.match(CODE_FORMS.get(code, rf"{code}\d+$"), word) for word in words)
    ]
    found += sorted({f"{policy.schedule} the pipeline's schedule" for policy in there if _unusual_schedule(policy)})
    found += sorted({f"{policy.loss} the loss" for policy in there if policy.loss})
    found += sorted(
        {f"{policy.sync.split(',')[0]} the strategy of data parallelism" for policy in there if policy.sync}
    )
    modules = sorted({name for policy in there for name in policy.recompute_modules})
    found += [f"{', '.join(modules)} recomputed modules"] if modules else []
    return "codes: " + "; ".join(found)


def _unusual_schedule(policy: Policy) -> bool:
    return policy.pp > 1 and policy.schedule != usual_schedule(policy.vpp)


def _plain() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True, show_edge=False)


def _head(report: Report) -> Table:
    table = Table(
        title=f"{report.model} on {report.cluster} ({report.gpus:,} x {report.gpu})", title_justify="left",
        title_style="bold", box=None, show_header=False, pad_edge=False,
    )  # fmt: skip
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    policy = report.policy
    batch = f"{report.global_sequences:,} x {report.seq_tokens:,} = {report.step_tokens:,} tokens"
    if report.examples:
        batch = f"{report.global_sequences:,} examples"
    unit = size_unit(report.peak_bytes)
    peak = unit.text(report.peak_bytes) + (f" {unit.name}" if unit.name != "GiB" else "")
    rows = [
        ("policy", policy_text(policy)),
        ("job", f"{batch} per step, {report.precision}, {report.optimizer}, stack {report.stack}"),
        *([("tuning", str(report.tuning))] if report.tuning is not None else []),
        ("verdict", report.verdict),
        ("step", f"{time_text(report.step_s)}, {report.tokens_per_s_per_gpu:,.0f} {report.counted}/s per GPU"),
        ("error", report.error_basis),
        ("MFU", f"{share_text(report.mfu_causal_half)}{_square(report)}; HFU {share_text(report.hfu)}"),
        ("memory", f"{peak} of {gib(report.capacity_bytes)} GiB on stage {report.fullest_stage}, "
                   f"{gib(report.reserve_bytes)} in reserve, {gib(report.free_bytes)} GiB free"),
    ]  # fmt: skip
    batches = "1 micro-batch" if report.micro_batches == 1 else f"{report.micro_batches:,} micro-batches"
    if report.pipeline_passes > 1:
        batches += f" in {report.pipeline_passes:,} passes"
    if policy.pp > 1:
        rows.append(("pipeline", f"{batches}, bubble {report.bubble_share:.1%} of the step"))
    else:
        rows.append(("batch", f"{batches} a step for each GPU"))
    if report.host_bytes:
        rows.append(("host", f"{gib(report.host_bytes)} GiB of host memory for each GPU, for offloaded state"))
    if report.sync is not None:
        rows += _sync_rows(report.sync)
    for name, value in rows:
        table.add_row(name, Text(value, style="red" if name == "verdict" and not report.fits else ""))
    return table


def _square(report: Report) -> str:
    """Where there is a square: attention of a model that reads tokens."""
    if report.mfu_full_square == report.mfu_causal_half:
        return ""
    return f", with the masked half of attention {share_text(report.mfu_full_square)}"


def _sync_rows(sync: SyncReport) -> list[tuple[str, str]]:
    to_loss = "" if sync.to_loss_s is None else f"; a step to the same loss {time_text(sync.to_loss_s)}"
    hidden = f", {time_text(sync.hidden_s)} of it under the {sync.hides_under}" if sync.hidden_s > 0 else ""
    return [
        ("sync", f"{sync.strategy} ({sync.summary}), {sync.workers:,} workers"),
        ("traffic", f"{sync.sent_bytes / 1e6:,.5g} MB a step, dense {sync.dense_sent_bytes / 1e6:,.5g} MB; "
                    f"{time_text(sync.messages_s)}{hidden}, {time_text(sync.compress_s)} to compress and keep state, "
                    f"{gib(sync.state_bytes)} GiB held"),
        *([] if sync.waits else [("waiting", _not_waiting(sync))]),
        ("extra steps", f"{sync.extra_text}{to_loss}; with the mean gradient {time_text(sync.dense_step_s)}"),
        ("measured", sync.extra_source),
        *([("published", sync.published)] if sync.published else []),
        *(("loses", loss.why) for loss in sync.loses),
    ]  # fmt: skip


def _not_waiting(sync: SyncReport) -> str:
    if sync.slowest_worker <= 1:
        return f"none; workers of equal speed (slow ones: {sync.strategy.split(',')[0]},periods=4,1,1,1)"
    return f"none; with the mean gradient all wait for the slowest worker, {sync.slowest_worker:g} x"


def _alike(stages: tuple[Stage, ...]) -> list[tuple[str, Stage]]:
    """Neighbouring stages with the same memory are one line: '3-6'."""
    groups: list[list[Stage]] = []
    for stage in stages:
        same = groups and abs(groups[-1][-1].total_bytes - stage.total_bytes) < 0.005 * stage.total_bytes
        if same:
            groups[-1].append(stage)
        else:
            groups.append([stage])
    return [(str(g[0].stage) if len(g) == 1 else f"{g[0].stage}-{g[-1].stage}", g[0]) for g in groups]


def _shown(lines: list[tuple[str, Stage]], fullest: float) -> list[tuple[str, Stage]]:
    """A long pipeline: its first and last stages and the fullest one."""
    if len(lines) <= MOST_STAGES:
        return lines
    return [
        line
        for i, line in enumerate(lines)
        if i < MOST_STAGES // 2 or i >= len(lines) - MOST_STAGES // 2 or line[1].total_bytes >= fullest
    ]


def _memory(report: Report) -> Table:
    table, unit = _plain(), size_unit(report.peak_bytes)
    for head, justify in (("stage", "left"), (unit.name, "right"), (f"| = {gib(report.capacity_bytes)} GiB", "left")):
        table.add_column(head, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    most = max(report.capacity_bytes, *(stage.total_bytes for stage in report.stages))
    for name, stage in _shown(_alike(report.stages), report.peak_bytes):
        table.add_row(name, unit.text(stage.total_bytes), _bar(stage.kinds_bytes, most, report.capacity_bytes))
    return table


def _bar(kinds: Mapping[str, float], most: float, limit: float) -> Text:
    text, position, filled = Text(), 0.0, 0
    for kind, size in kinds.items():
        position += size
        until = round(BAR * position / most)
        letter, style = LETTERS.get(kind, ("?", ""))
        text.append(letter * (until - filled), style=style)
        filled = until
    mark = round(BAR * limit / most)
    text.append("." * (mark - filled))
    return text[:mark] + Text("|") + text[mark:]


def _legend(report: Report) -> Text:
    kinds = report.stages[report.fullest_stage].kinds_bytes
    unit = size_unit(report.peak_bytes)
    text = Text(f"stage {report.fullest_stage}, {unit.name}:")
    for kind, size in kinds.items():
        if size > 0:
            letter, style = LETTERS.get(kind, ("?", ""))
            text.append("  ")
            text.append(letter, style=style)
            text.append(f" {kind} {unit.text(size)}")
    return text


def _time(report: Report) -> Table:
    table, (name, scale) = _plain(), (("us", 1e6) if report.step_s < SHORT_S else ("ms", 1e3))
    for head, left in (("part", True), (name, False), ("share", False), ("", True)):
        table.add_column(head, justify="left" if left else "right", no_wrap=True)
    for part, seconds in sorted(report.time_s.items(), key=lambda item: -item[1]):
        share = seconds / report.step_s
        if share >= SHOWN_SHARE:
            table.add_row(part, f"{seconds * scale:,.1f}", f"{share:.1%}", "#" * round(BAR * share))
    return table


def _traffic_unit(report: Report) -> tuple[str, float]:
    most = max(sent for levels in report.traffic_bytes.values() for sent in levels.values())
    return ("GB", 1e9) if most >= SMALL_BYTES else ("kB", 1e3)


def _traffic(report: Report, scale: float) -> Table:
    table = _plain()
    levels = list(next(iter(report.traffic_bytes.values())))
    table.add_column("axis")
    for level in levels:
        table.add_column(level, justify="right")
    for axis, sent in report.traffic_bytes.items():
        if any(sent.values()):
            table.add_row(axis, *(_sent(sent[level] / scale) for level in levels))
    return table


def _sent(amount: float) -> str:
    if not amount:
        return "-"
    return f"{amount:,.0f}" if amount >= 1e3 else f"{amount:.3g}"


def _money(report: Report) -> Table:
    table = _plain()
    for head in ("amount", report.counted, "time", "MWh", "power USD", "rent USD"):
        table.add_column(head, justify="left" if head == "amount" else "right", no_wrap=True)
    for name, money in report.money.items():
        amount = name.replace("_", " ").replace("tokens", report.counted)
        table.add_row(amount, f"{money.tokens:,.3g}", time_text(money.seconds),
                      mwh_text(money), dollars_text(money.electricity_usd), usd_text(money))  # fmt: skip
    return table


def days_text(seconds: float) -> str:
    """'0.31', '52.7', '4,085': days as a number, however many."""
    days = seconds / DAY
    return f"{days:,.0f}" if days >= 1000 else f"{days:.3g}"


def mwh_text(money: Money) -> str:
    energy = money.energy_j / 3.6e9
    return f"{energy:,.0f}" if energy >= 100 else f"{energy:.3g}"


def usd_text(money: Money) -> str:
    """The rent."""
    return dollars_range(money.usd)


def dollars_range(usd: tuple[float, float] | None) -> str:
    """'615–2,310', or one figure where low and high are the same."""
    if usd is None:
        return "-"
    low, high = usd
    if low == high:
        return dollars_text(high)
    if high < MILLION:
        return f"{dollars_text(low, near=high)}–{dollars_text(high)}"
    return f"{_millions(low)}–{_millions(high)}M"


def _millions(usd: float) -> str:
    return f"{usd / MILLION:,.0f}" if usd >= 100 * MILLION else f"{usd / MILLION:.3g}"


def dollars_text(usd: float, near: float | None = None) -> str:
    """`near`: in whole dollars where that one is."""
    if usd >= MILLION:
        return f"{_millions(usd)}M"
    return f"{usd:,.0f}" if (usd if near is None else near) >= WHOLE_DOLLARS else f"{usd:.2f}"


def _lines(lines: Iterable[str]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row("-", line)
    return table
