"""What a traced step assumed, in the user's words."""

from shardwise.trace.events import AttentionCall, Capture
from shardwise.trace.result import TraceResult


def notes_of(captured: Capture, found: TraceResult) -> list[str]:
    notes = []
    if captured.numbers_read:
        notes.append(f"{captured.numbers_read:,} numbers were read from tensors that have no values: each was 1.0")
    if captured.compiled:
        notes.append(
            "torch.compile was asked for and left out: passes between products are priced as one, memory is that of "
            "the uncompiled step"
        )
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
        "overlap: a kernel waits for what it reads and for its launch; FSDP2's messages run beside kernels, others "
        "where nobody waits for them",
        f"time: stack {found.time.stack}, {found.time.band} (predictions of the closed form; no traced script among "
        "them)",
    ]
    return notes
