"""An estimate with a strategy of data parallelism, held against the mean gradient on the same policy -> SyncReport."""

from shardwise.plugins.sync._asynchronous import slowest_ticks
from shardwise.report.sync_report import Drawback, SyncReport
from shardwise.step.estimate.closed_form import Estimate
from shardwise.step.estimate.synced import SyncChoice
from shardwise.step.estimate.synced.compress import source_of
from shardwise.step.estimate.synced.price import sent_bytes, workers_of
from shardwise.step.estimate.synced.traffic import dense_bytes, traffic_of
from shardwise.step.estimate.time import waiting_step
from shardwise.units import gib, time_text
from shardwise.work import Work
from shardwise.work.stages import largest

WORTH_SAYING = 1e-3
"""share of a step"""
GATHERED = "gathered messages outgrow the dense gradient"
FAST_LINKS = "compressing takes longer than it saves on these links"
NO_SHORTER = "the step is no shorter: gradients already travel under the backward pass"
NO_ROOM = "its state does not fit"
EQUAL_SPEED = "workers of equal speed: nobody would have been waited for"
MORE_STEPS = "a shorter step, but more of them to the same loss"


def sync_report(choice: SyncChoice, found: Estimate, dense: Estimate) -> SyncReport:
    times, strategy, extra = found.times, choice.strategy, choice.extra
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
    dense_sent = held * dense_bytes(workers)
    held_bytes = float(largest(found.memory.kinds["sync"])[0][0])
    room = [] if found.fits[0] else [_no_room(held_bytes, float(dense.memory.peak[0]), bool(dense.fits[0]))]
    loses = _loses(choice, found.work, workers, sent / dense_sent, compress, (step, dense_step), to_loss)
    return SyncReport(
        strategy=choice.text, settings=repr(strategy), summary=strategy.summary, source=strategy.source,
        workers=workers, sent_bytes=sent, dense_sent_bytes=dense_sent, messages_s=messages, hidden_s=hidden,
        hides_under=strategy.hides_under(), waits=strategy.waits(), slowest_worker=slowest,
        compress_s=compress, compress_source=source_of(strategy),
        state_bytes=held_bytes, dense_step_s=dense_step,
        extra_steps=extra.share, extra_at_least=extra.at_least, extra_source=extra.source,
        published=extra.published, to_loss_s=to_loss,
        loses=(*room, *loses),
    )  # fmt: skip


def _no_room(state: float, without: float, fits: bool) -> Drawback:
    """Of a policy that does not fit with it."""
    also = "would fit" if fits else "does not fit either"
    return Drawback(kind=NO_ROOM, why=f"its {gib(state)} GiB of state do not fit; without them the policy takes "
                                      f"{gib(without)} GiB and {also}")  # fmt: skip


def _loses(
    choice: SyncChoice, work: Work, workers: int, volume: float, compress: float, steps: tuple[float, float],
    to_loss: float | None,
) -> list[Drawback]:  # fmt: skip
    step, dense = steps
    found = []
    traffic = traffic_of(choice.strategy, workers, work.model, int(work.layout.policies.tp[0]))
    if volume > 1 and traffic.gathers:
        found.append(Drawback(kind=GATHERED, why=(
            f"messages gathered from all {workers:,} workers are {volume:.2g} times the dense gradient: Top-K of share "
            "r loses once n r > 1; double_squeeze and neolithic send in two phases and do not grow with n"
        )))  # fmt: skip
    if step >= dense * (1.0 - WORTH_SAYING):
        saved = max(dense - (step - compress), 0.0)
        even = not choice.strategy.waits()
        if compress > saved and source_of(choice.strategy):
            found.append(Drawback(kind=FAST_LINKS, why=(
                f"compressing takes {time_text(compress)} a step and smaller messages save {time_text(saved)}: these "
                "links are too fast for it"
            )))  # fmt: skip
        else:
            why = EQUAL_SPEED if even else NO_SHORTER
            found.append(Drawback(kind=why, why=why))
    elif to_loss is not None and to_loss > dense:
        shorter, more = f"{1 - step / dense:.1%}", f"{to_loss / dense - 1:.0%}"
        found.append(Drawback(kind=MORE_STEPS, why=(
            f"its step is {shorter} shorter, but to the same loss it takes {more} longer"
        )))  # fmt: skip
    return found
