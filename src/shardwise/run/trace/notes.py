"""What a traced step assumed, in the user's words."""

from shardwise.run.trace.events import AttentionCall, Capture
from shardwise.run.trace.result import TraceResult


def notes_of(captured: Capture, found: TraceResult) -> list[str]:
    notes = []
    if captured.numbers_read:
        notes.append(
            f"{captured.numbers_read:,} values were asked of tensors that have none: a number is taken to be 1.0, a "
            "mask to mask nothing, a router's choice to be balanced"
        )
    if captured.compiled:
        notes.append(
            "torch.compile was asked for and not run: passes between products are priced as one, and what such a pass "
            "uses up or the backward can make again is not in memory"
        )
    phases = {event.phase for event in captured.events}
    missing = [name for name, phase in (("backward pass", "backward"), ("optimizer step", "optimizer"))
               if phase not in phases]  # fmt: skip
    if missing:
        notes.append(f"the step has no {' and no '.join(missing)}")
    if captured.world > 1 and not captured.messages:
        notes.append(f"the step sends nothing: each of the {captured.world:,} ranks trains alone")
    uneven = sorted({message.group.name for _, message in captured.messages if not message.group.even})
    if uneven:
        notes.append(f"ranks of {', '.join(uneven)} are unevenly far apart: the mean distance was priced")
    if any(message.op in ("send", "receive") for _, message in captured.messages):
        notes.append("one rank is traced: waiting for other pipeline stages (the bubble) is not in the time")
    if found.time is None:
        return notes
    if any(isinstance(event.work, AttentionCall) and event.work.dtype == "fp32" for event in captured.events):
        notes.append("attention in fp32 is priced as a fused kernel at that dtype's peak")
    notes += [
        "overlap: a kernel waits for what it reads and for its launch; FSDP2's messages overlap kernels, others "
        "where nobody waits for them",
        f"time: stack {found.time.stack}, {found.time.band} (predictions of the closed form; no traced script among "
        "them)",
    ]
    return notes
