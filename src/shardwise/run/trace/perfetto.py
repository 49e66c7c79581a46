"""A traced and priced step for Perfetto: a thread for each stream, memory by kind as a counter."""

from collections import Counter

from shardwise.programs.exporters.trace_events import Event, counter, process_name, span, thread_name, write_events
from shardwise.run.trace.events import KINDS, Capture
from shardwise.run.trace.overlap import KERNELS, Playback
from shardwise.whole_file import OutputFile


def write_perfetto(captured: Capture, played: Playback, file: OutputFile) -> int:
    """Returns the number of events."""
    title = f"rank {captured.rank} of {captured.world}"
    events = [*process_name(0, title), *_spans(played), *_memory(captured, played)]
    return write_events(events, file, title)


def _spans(played: Playback) -> list[Event]:
    others = dict.fromkeys(each.lane for each in played.spans if each.lane != KERNELS)
    lanes = {lane: place for place, lane in enumerate([KERNELS, *others])}
    return [
        *(thread_name(0, place, lane) for lane, place in lanes.items()),
        *(span(0, lanes[s.lane], s.name, s.phase, s.start_s, s.end_s, {"phase": s.phase, "bytes": s.bytes})
          for s in played.spans),
    ]  # fmt: skip


def _memory(captured: Capture, played: Playback) -> list[Event]:
    """A change is drawn at the start of the kernel that follows it."""
    now: Counter[str] = Counter()
    found, done = [], 0
    for kernel in played.spans:
        if kernel.lane != KERNELS or kernel.at == done:
            continue
        for held, change in captured.changes[done : kernel.at]:
            now[held.kind] += change
        done = kernel.at
        level = {kind: now[kind] / 2**30 for kind in KINDS}
        found.append(counter(0, "memory GiB", kernel.start_s, level))
    return found
