"""An estimate with a strategy of data parallelism, held against the mean gradient on the same policy -> SyncReport."""

from msgspec import structs

from shardwise.plugins.sync._asynchronous import slowest_ticks
from shardwise.report.sync_report import ByNode, Drawback, SyncReport
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.step.estimate.synced import SyncChoice, choice_of
from shardwise.step.estimate.synced.compress import source_of
from shardwise.step.estimate.synced.price import sent_bytes, workers_of
from shardwise.step.estimate.synced.rules import refusal
from shardwise.step.estimate.synced.traffic import dense_bytes, traffic_of
from shardwise.step.estimate.time import waiting_step
from shardwise.units import gib, time_text
from shardwise.work.case import Case
from shardwise.work.stages import largest

HIERARCHICAL = "hierarchical"
WORTH_SAYING = 1e-3
"""share of a step"""
GATHERED = "gathered messages outgrow the dense gradient"
FAST_LINKS = "compressing takes longer than it saves on these links"
NO_SHORTER = "the step is no shorter"
NO_ROOM = "its state does not fit"
EQUAL_SPEED = "nobody would have been waited for"
SLOW_SERVER = "messages take longer than waiting for the slowest worker"
MORE_STEPS = "a shorter step, but more of them to the same loss"


def sync_report(case: Case, policy: Policy, choice: SyncChoice, found: Estimate) -> SyncReport:
    times, strategy, extra = found.times, choice.strategy, choice.extra
    dense = estimate(case, Policies.of([policy]), every_stage=True)
    hidden, exposed, compress = (
        float(part[0]) for part in (times.hidden["sync"], times.parts["sync_comm"], times.parts["sync_work"])
    )
    messages = exposed + (1.0 - found.work.stack.overlap.overlap_slowdown * strategy.waits()) * hidden
    who = workers_of(found.work.layout)
    workers, step = int(who.count[0]), float(times.step_s[0])
    cycles = strategy.cycles(workers)
    slowest = 1.0 if cycles is None else slowest_ticks(cycles)
    held = sum(float(largest(grid)[0][0]) for grid in found.work.parameters) * float(who.share[0])
    to_loss = None if extra.share is None else step * (1.0 + extra.share)
    sent, dense_step = float(sent_bytes(choice, found.work)[0]), float(waiting_step(dense.times, slowest)[0])
    held_bytes = float(largest(found.memory.kinds["sync"])[0][0])
    report = SyncReport(
        strategy=choice.text, settings=repr(strategy), summary=strategy.summary, source=strategy.source,
        workers=workers, sent_bytes=sent, dense_sent_bytes=held * dense_bytes(workers), messages_s=messages,
        hidden_s=hidden, hides_under=strategy.hides_under(), waits=strategy.waits(), slowest_worker=slowest,
        compress_s=compress, compress_source=source_of(strategy),
        state_bytes=held_bytes, dense_step_s=dense_step,
        extra_steps=extra.share, extra_at_least=extra.at_least, extra_source=extra.source,
        published=extra.published, to_loss_s=to_loss, loses=(), by_node=_by_node(case, policy, choice, found),
    )  # fmt: skip
    room = [] if found.fits[0] else [_no_room(held_bytes, float(dense.memory.peak[0]), bool(dense.fits[0]))]
    return structs.replace(report, loses=(*room, *_loses(choice, report, found, dense)))


def _by_node(case: Case, policy: Policy, choice: SyncChoice, found: Estimate) -> ByNode | None:
    """Where neighbouring workers share a node, and something is left to send between nodes."""
    who = workers_of(found.work.layout)
    node, workers = case.cluster.node_size // max(int(who.stride[0]), 1), int(who.count[0])
    if choice.strategy.name in (HIERARCHICAL, "psgd") or node < 2 or workers <= node or workers % node:
        return None
    name, _, settings = choice.text.partition(",")
    outer = [f"outer.{text}" for text in settings.split(",") if "=" in text]
    text = ",".join((f"{HIERARCHICAL},inner=psgd,outer={name}", f"size={node}", *outer))
    try:
        nodes = choice_of(text, case.job.optimizer.name)
    except ValueError as refused:
        return ByNode(strategy=text, node=node, step_s=0.0, refused=str(refused))
    assert nodes is not None
    if why := refusal(nodes, case.model, case.job, policy):
        return ByNode(strategy=text, node=node, step_s=0.0, refused=why)
    step = float(estimate(case, Policies.of([policy]), sync=nodes).times.step_s[0])
    return ByNode(strategy=text, node=node, step_s=step)


def _no_room(state: float, without: float, fits: bool) -> Drawback:
    """Of a policy that does not fit with it."""
    also = "would fit" if fits else "does not fit either"
    return Drawback(kind=NO_ROOM, why=f"its {gib(state)} GiB of state do not fit; without them the policy takes "
                                          f"{gib(without)} GiB and {also}")  # fmt: skip


def _loses(choice: SyncChoice, report: SyncReport, found: Estimate, dense: Estimate) -> list[Drawback]:
    """Why it does not pay, from the seconds of this step and of the one with the mean gradient."""
    step, other = float(found.times.step_s[0]), report.dense_step_s
    losses, work, volume = [], found.work, report.sent_bytes / report.dense_sent_bytes
    traffic = traffic_of(choice.strategy, report.workers, work.model, int(work.layout.policies.tp[0]))
    if volume > 1 and traffic.gathers:
        losses.append(Drawback(kind=GATHERED, why=(
            f"messages gathered from all {report.workers:,} workers are {volume:.2g} times the dense gradient: Top-K "
            "of share r loses once n r > 1; double_squeeze and neolithic send in two phases and do not grow with n"
        )))  # fmt: skip
    if step >= other * (1.0 - WORTH_SAYING):
        losses.append(_no_shorter(choice, report, dense, step))
    elif report.to_loss_s is not None and report.to_loss_s > other:
        shorter, more = f"{1 - step / other:.1%}", f"{report.to_loss_s / other - 1:.0%}"
        losses.append(Drawback(kind=MORE_STEPS, why=f"a step {shorter} shorter, {more} longer to the same loss"))
    return losses


def _no_shorter(choice: SyncChoice, report: SyncReport, dense: Estimate, step: float) -> Drawback:
    compress, other = report.compress_s, report.dense_step_s
    saved = max(other - (step - compress), 0.0)
    if compress > saved and source_of(choice.strategy):
        return Drawback(kind=FAST_LINKS, why=(
            f"compressing takes {time_text(compress)} a step and smaller messages save {time_text(saved)}"
        ))  # fmt: skip
    steps = f"a step of {time_text(step)} against {time_text(other)}"
    if not report.waits:
        even = report.slowest_worker <= 1.0
        return Drawback(kind=EQUAL_SPEED if even else SLOW_SERVER, why=(
            f"the slowest worker takes {report.slowest_worker:g} times as long as the fastest; {steps}"
        ))  # fmt: skip
    exposed, hidden = (
        sum(float(part[name][0]) for name in names)
        for part, names in ((dense.times.parts, ("grad_comm", "param_comm")), (dense.times.hidden, ("grad", "param")))
    )
    own = report.messages_s - report.hidden_s
    return Drawback(kind=NO_SHORTER, why=(
        f"{time_text(max(own, 0.0))} of its messages are exposed and {time_text(report.hidden_s)} hidden; of the mean "
        f"gradient's {time_text(exposed)} and {time_text(hidden)}; {steps}"
    ))  # fmt: skip
