"""The named cases: what is done to a training, and what must be found afterwards."""

from collections.abc import Callable
from dataclasses import dataclass

from shardwise_lab.chaos.trained import ONSET, TIMEOUT_S, ChaosRun
from shardwise_lab.faults import Fault, mend

VICTIM = 1
"""the rank that is killed, or whose link is cut or slow"""
TO_VICTIM, FROM_VICTIM = f"leaf 0 > node {VICTIM} gpu 0", f"node {VICTIM} gpu 0 > leaf 0"
SLOW = 0.1
FAILED = "failed: "
ANEW = "all ranks start again"


@dataclass(frozen=True)
class ChaosCase:
    name: str
    explained: tuple[str, str, str]
    put_in: Callable[[ChaosRun], None]
    """while it trains"""
    doctor: tuple[str, ...]
    """causes by which `doctor` names it, any of them first"""
    names_rank: bool
    restarts: bool
    """all ranks start again from the last checkpoint"""
    link: str = ""
    """that is cut or slowed"""
    times_out: bool = False


def _kill(run: ChaosRun) -> None:
    run.wait_for_step(ONSET)
    run.kill_rank(VICTIM)
    run.wait_for_words(ANEW)


def _cut(run: ChaosRun) -> None:
    run.wait_for_step(ONSET)
    fault = Fault(link=TO_VICTIM, at_s=0.0, share=0.0)
    run.put_in(fault)
    run.wait_for_words(FAILED)
    # somebody plugs it in again, while the ranks give up
    mend(run.built, fault)
    run.wait_for_words(ANEW)


def _slow(run: ChaosRun) -> None:
    run.wait_for_step(ONSET)
    run.put_in(Fault(link=FROM_VICTIM, at_s=0.0, share=SLOW))


KILL = ChaosCase("kill-rank", (
    f"Four ranks train; after step {ONSET} the process of rank {VICTIM} is killed, as by a machine out of memory.",
    "The launcher says who was killed, ends the others and starts all again, from the last whole checkpoint.",
    "Steps since that checkpoint are made again, with the same losses bit for bit: time is lost, nothing else.",
), _kill, ("killed",), names_rank=True, restarts=True)  # fmt: skip
CUT = ChaosCase("cut-link", (
    f"The cable of GPU {VICTIM} is cut after step {ONSET}. No connection is closed: all wait for bytes in vain.",
    f"After {TIMEOUT_S:g} s each rank says which message of which step failed and who gave no sign; all start again.",
    "The cable is plugged in again meanwhile; the run resumes from the last checkpoint and makes all its steps.",
), _cut, ("silent", "network"), names_rank=True, restarts=True, link=TO_VICTIM, times_out=True)  # fmt: skip
SLOWED = ChaosCase("slow-link", (
    f"The NIC of GPU {VICTIM} sends at a tenth of its speed from step {ONSET} on, as after a bad cable.",
    "Nothing fails and nothing is restarted: every rank waits for the slow NIC, in every step.",
    "Messages take longer while no rank works longer, so the doctor names the network; the queue names the port.",
), _slow, ("slow_link",), names_rank=False, restarts=False, link=FROM_VICTIM)  # fmt: skip
CHAOS = {case.name: case for case in (KILL, CUT, SLOWED)}
