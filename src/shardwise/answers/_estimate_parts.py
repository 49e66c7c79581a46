"""The facts and tables of a Report: memory by stage, time by part, traffic, money."""

from collections.abc import Iterator, Mapping

from shardwise.answers.answer import Cell, FactList, Table
from shardwise.report.report import Report, Stage
from shardwise.report.sync_report import ByNode, SyncReport
from shardwise.report.terminal import dollars_text, mwh_text, policy_text, usd_text
from shardwise.step.estimate.chance import chance_text
from shardwise.step.estimate.reached import StepRange
from shardwise.units import gib, share_text, size_unit, time_text

BAR = 50
LETTERS = {
    "parameters": "P", "gradients": "G", "optimizer": "O", "activations": "A", "logits": "L", "gathered": "F",
    "working": "W", "buffers": "B", "overhead": "x", "sync": "S",
}  # fmt: skip
MOST_STAGES = 12
SHORT_S = 0.01
"""steps below this are shown in microseconds"""
SMALL_BYTES = 1e6
"""traffic below this is shown in kB"""
SHOWN_SHARE = 0.0005
"""parts of a step below this share are left out (JSON has them)"""


def facts_of(report: Report, chosen: str = "", reached: StepRange | None = None) -> FactList:
    """`chosen`: follows the policy, on who chose it."""
    title = f"{report.model} on {report.cluster} ({report.gpus:,} x {report.gpu})"
    return FactList(title, list(_facts(report, chosen, reached)))


def _facts(report: Report, chosen: str, reached: StepRange | None) -> Iterator[tuple[str, Cell]]:
    batch = f"{report.global_sequences:,} x {report.seq_tokens:,} = {report.step_tokens:,} tokens"
    if report.examples:
        batch = f"{report.global_sequences:,} examples"
    unit = size_unit(report.peak_bytes)
    peak = unit.text(report.peak_bytes) + (f" {unit.name}" if unit.name != "GiB" else "")
    yield "policy", policy_text(report.policy) + chosen
    yield "job", f"{batch} per step, {report.precision}, {report.optimizer}, stack {report.stack}"
    yield "tuning", None if report.tuning is None else str(report.tuning)
    yield "verdict", report.verdict
    yield "step", f"{time_text(report.step_s)}, {report.tokens_per_s_per_gpu:,.0f} {report.counted}/s per GPU"
    if reached is not None:
        tuned = f"{time_text(reached.tuned_low_s)} .. {time_text(reached.tuned_high_s)}"
        yield "tuned", f"{tuned} in 80% of runs by the program's makers"
        typical = f"{time_text(reached.typical_low_s)} .. {time_text(reached.typical_high_s)}"
        yield "typical", f"{time_text(reached.typical_s)}, {typical} in 80% of runs by others"
        if reached.setbacks:
            yield "slower", "; ".join(map(str, reached.setbacks))
    yield "error", report.error_basis
    yield "MFU", f"{share_text(report.mfu_causal_half)}{_square(report)}; HFU {share_text(report.hfu)}"
    yield "memory", (f"{peak} of {gib(report.capacity_bytes)} GiB on stage {report.fullest_stage}, "
                     f"{gib(report.reserve_bytes)} in reserve, {gib(report.free_bytes)} GiB free")  # fmt: skip
    yield "risk", f"{chance_text(report.out_of_memory_chance)} of running out of memory, by published peaks"
    batches = "1 micro-batch" if report.micro_batches == 1 else f"{report.micro_batches:,} micro-batches"
    if report.pipeline_passes > 1:
        batches += f" in {report.pipeline_passes:,} passes"
    if report.policy.pp > 1:
        yield "pipeline", f"{batches}, bubble {report.bubble_share:.1%} of the step"
    else:
        yield "batch", f"{batches} a step for each GPU"
    if report.host_bytes:
        yield "host", host_words(report.host_bytes, report.host_limit_bytes)
    if report.sync is not None:
        yield from _sync_rows(report.sync)


def host_words(held: float, limit: float) -> str:
    share = f"{held / limit:.0%}" if limit else "all"
    return f"{gib(held)} GiB offloaded by each GPU, {share} of its host's {gib(limit)} (--host-memory)"


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
        *([] if sync.by_node is None else [("nodes", _by_node(sync.by_node))]),
        ("traffic", f"{sync.sent_bytes / 1e6:,.5g} MB a step, dense {sync.dense_sent_bytes / 1e6:,.5g} MB; "
                    f"{time_text(sync.messages_s)}{hidden}, {time_text(sync.compress_s)} to compress and keep state, "
                    f"{gib(sync.state_bytes)} GiB held"),
        *([] if sync.waits else [("waiting", _not_waiting(sync))]),
        ("extra steps", f"{sync.extra_text}{to_loss}; with the mean gradient {time_text(sync.dense_step_s)}"),
        ("measured", sync.extra_source),
        *([("published", sync.published)] if sync.published else []),
        *(("loses", f"{loss.kind}: {loss.why}") for loss in sync.loses),
    ]  # fmt: skip


def _by_node(nodes: ByNode) -> str:
    """Published runs of such strategies often have a node for a worker."""
    here = f"{nodes.node} of these workers share a node"
    if nodes.refused:
        return f"{here}; one worker a node cannot run: {nodes.refused}"
    return f"{here}; one worker a node takes {time_text(nodes.step_s)}: --sync {nodes.strategy}"


def _not_waiting(sync: SyncReport) -> str:
    if sync.slowest_worker <= 1:
        return f"none; workers of equal speed (slow ones: {sync.strategy.split(',')[0]},periods=4,1,1,1)"
    return f"none; with the mean gradient all wait for the slowest worker, {sync.slowest_worker:g} x"


def memory_table(report: Report) -> Table:
    unit = size_unit(report.peak_bytes)
    most = max(report.capacity_bytes, *(stage.total_bytes for stage in report.stages))
    rows: list[list[Cell]] = [
        [name, unit.text(stage.total_bytes), _bar(stage.kinds_bytes, most, report.capacity_bytes)]
        for name, stage in _shown(_alike(report.stages), report.peak_bytes)
    ]
    bar = f"| = {gib(report.capacity_bytes)} GiB"
    return Table("memory of one GPU by stage", ["stage", unit.name, bar], rows, left=[bar])


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


def _bar(kinds: Mapping[str, float], most: float, limit: float) -> str:
    text, position = "", 0.0
    for kind, size in kinds.items():
        position += size
        text += LETTERS.get(kind, "?") * (round(BAR * position / most) - len(text))
    mark = round(BAR * limit / most)
    text += "." * (mark - len(text))
    return text[:mark] + "|" + text[mark:]


def memory_legend(report: Report) -> FactList:
    unit = size_unit(report.peak_bytes)
    kinds = [f"{LETTERS.get(kind, '?')} {kind} {unit.text(size)}"
             for kind, size in report.stages[report.fullest_stage].kinds_bytes.items() if size > 0]  # fmt: skip
    return FactList("", [(f"stage {report.fullest_stage}, {unit.name}:", "  ".join(kinds))])


def time_table(report: Report) -> Table:
    name, scale = ("us", 1e6) if report.step_s < SHORT_S else ("ms", 1e3)
    shares = {part: seconds / report.step_s for part, seconds in report.time_s.items()}
    rows: list[list[Cell]] = [
        [part, f"{report.time_s[part] * scale:,.1f}", f"{share:.1%}", "#" * round(BAR * share)]
        for part, share in sorted(shares.items(), key=lambda item: -item[1])
        if share >= SHOWN_SHARE
    ]
    return Table("time of one step", ["part", name, "share", ""], rows, left=[""])


def hidden_line(report: Report) -> FactList:
    hidden = ", ".join(f"{axis} {time_text(seconds)}" for axis, seconds in report.hidden_s.items() if seconds > 0)
    return FactList("", [("hidden under compute:", hidden)] if hidden else [])


def _traffic_unit(report: Report) -> tuple[str, float]:
    most = max(sent for levels in report.traffic_bytes.values() for sent in levels.values())
    return ("GB", 1e9) if most >= SMALL_BYTES else ("kB", 1e3)


def traffic_table(report: Report) -> Table | None:
    """None where nothing is sent, or it was not counted."""
    if not any(sent for levels in report.traffic_bytes.values() for sent in levels.values()):
        return None
    name, scale = _traffic_unit(report)
    levels = list(next(iter(report.traffic_bytes.values())))
    rows: list[list[Cell]] = [
        [axis, *(_sent(sent[level] / scale) for level in levels)]
        for axis, sent in report.traffic_bytes.items()
        if any(sent.values())
    ]
    return Table(f"sent by an average GPU in one step, {name}", ["axis", *levels], rows)


def _sent(amount: float) -> str:
    if not amount:
        return "-"
    return f"{amount:,.0f}" if amount >= 1e3 else f"{amount:.3g}"


def money_table(report: Report) -> Table:
    heads = ["amount", report.counted, "time", "MWh", "power USD", "rent USD"]
    rows: list[list[Cell]] = [
        [name.replace("_", " ").replace("tokens", report.counted), f"{money.tokens:,.3g}", time_text(money.seconds),
         mwh_text(money.energy_j), dollars_text(money.electricity_usd), usd_text(money)]
        for name, money in report.money.items()
    ]  # fmt: skip
    return Table("energy and cost", heads, rows)
