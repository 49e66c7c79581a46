"""Records of ranks as a run would have written them, with something wrong put in."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from shardwise.measured.record.step import RecordHead, RecordLine, RunEnd, RunEvent, StepRecord

BEGIN = 1_700_000_000.0


@dataclass
class MadeRun:
    """Ranks that work for 80 ms and reduce gradients for 20; who is early waits for the last one."""

    ranks: int = 4
    steps: int = 80
    stages: int = 1
    noise: float = 0.05
    seed: int = 0
    slow: dict[int, float] = field(default_factory=dict)
    """rank -> times its own work takes"""
    since: int = 0
    """the first step of what is wrong"""
    late_data: dict[int, float] = field(default_factory=dict)
    network: float = 1.0
    save_s: float = 0.0
    leak: dict[int, float] = field(default_factory=dict)
    hot: float = 0.0
    """share of all tokens that go to expert 3 beyond its even one"""
    uneven_stages: tuple[float, ...] = ()
    everyone: float = 1.0
    """times all own work, from `since` on"""
    predicted: tuple[float, float, float] | None = None
    """step, low, high"""
    ends: dict[int, str | None] = field(default_factory=dict)
    """rank -> why it ended; None: it wrote no end"""
    events: tuple[RunEvent, ...] = ()
    checkpoints: str = ""
    processor: bool = True
    """ranks say how long they had the processor"""
    pressure: tuple[float, float] | None = None
    """share of the time in which someone waited for a processor, before `since` and from there on"""
    queued: bool = False
    """what takes longer is time in line for a processor"""

    def lines(self) -> dict[str, list[bytes]]:
        random = np.random.default_rng(self.seed)
        found: dict[str, list[bytes]] = {}
        stage = [rank * self.stages // self.ranks for rank in range(self.ranks)]
        own = 0.08 * random.lognormal(0.0, self.noise, (self.ranks, self.steps))
        data = 0.001 * random.lognormal(0.0, self.noise, (self.ranks, self.steps))
        wire = 0.02 * random.lognormal(0.0, self.noise, self.steps)
        wrong = np.arange(self.steps) >= self.since
        quick = own.copy()
        for rank, times in self.slow.items():
            own[rank, wrong] *= times
        for rank, seconds in self.late_data.items():
            data[rank, wrong] += seconds
        own[:, wrong] *= self.everyone
        wire[wrong] *= self.network
        for rank in range(self.ranks):
            own[rank] *= self.uneven_stages[stage[rank]] if self.uneven_stages else 1.0
        arrive = (own + data).max(axis=0)
        tokens = self._experts(random, wrong)
        for rank in range(self.ranks):
            at, rows = BEGIN, [_line(RecordLine(head=self._head(rank, stage[rank])))]
            for step in range(self.steps):
                work, waited = float(own[rank, step]), float(data[rank, step])
                comm = float(arrive[step] + wire[step]) - work - waited
                save = self.save_s if step % 10 == 9 else 0.0
                total = work + waited + comm + save
                at += total
                held = 2.0**30 + self.leak.get(rank, 0.0) * step + random.normal(0, 2**12)
                rows.append(_line(StepRecord(
                    step=step + 1, at_s=at, step_s=total, data_s=waited, comm_s=comm, hidden_s=0.01,
                    axes_s={"dp": comm}, save_s=save or None,
                    cpu_s=float(quick[rank, step] if self.queued else work) if self.processor else None,
                    thread_s=float(quick[rank, step]) if self.queued else None,
                    queued_s=work - float(quick[rank, step]) if self.queued else None,
                    pressure_s=total * self.pressure[int(wrong[step])] if self.pressure else None,
                    peak_bytes=int(held),
                    held_bytes=int(held), experts=None if tokens is None else [tokens[rank][step]], loss=2.0,
                )))  # fmt: skip
            why = self.ends.get(rank, "")
            if why is not None:
                rows.append(_line(RecordLine(end=RunEnd(at_s=at, step=self.steps, why=why))))
            found[f"rank-{rank:05}.jsonl"] = rows
        if self.events:
            found["launcher.jsonl"] = [_line(RecordLine(event=event)) for event in self.events]
        return found

    def _head(self, rank: int, stage: int) -> RecordHead:
        step, low, high = self.predicted or (None, None, None)
        places = {"pp": stage, "dp": rank % max(self.ranks // self.stages, 1), "ep": rank % 2 if self.hot else 0}
        return RecordHead(rank=rank, ranks=self.ranks, host="made", pid=0, at_s=BEGIN, program="shardwise run",
                          device="cpu", places=places, predicted_step_s=step, predicted_low_s=low,
                          predicted_high_s=high, checkpoints=self.checkpoints)  # fmt: skip

    def _experts(self, random, wrong) -> list[list[list[int]]] | None:
        if not self.hot:
            return None
        even = np.full(8, 1 / 8)
        shares = [even * (1 - self.hot) + self.hot * (np.arange(8) == 3) if bad else even for bad in wrong]
        return [[random.multinomial(512, share).tolist() for share in shares] for _ in range(self.ranks)]

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in self.lines().items():
            (folder / name).write_bytes(b"\n".join(rows) + b"\n")
        return folder


def _line(line: object) -> bytes:
    return msgspec.json.encode(line)
