"""`shardwise lab chaos`: a training to which something is done; do time-out, restart and doctor do their part?"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.doctor import CauseFinding
from shardwise.show.cli._output import print_gap, print_json, print_notes, print_table
from shardwise.show.cli._progress import spoken
from shardwise.show.cli.doctor import examined
from shardwise_lab.chaos import CHAOS, ChaosCase, chaos_named, play
from shardwise_lab.chaos.cases import VICTIM
from shardwise_lab.chaos.played import ChaosCheck, ChaosResult
from shardwise_lab.cli._flags import DryRun, Json, Limit, become_root, limit_of
from shardwise_lab.page import comparison_rows, counts_text, scale_text

FAILED = 1


def chaos(
    name: Annotated[str, Parameter(help=f"{', '.join(CHAOS)}.")],
    /,
    *,
    keep: Annotated[
        Path | None, Parameter(help="Folder for the run's files (records, checkpoints, log, port counters).")
    ] = None,
    limit: Limit = "5 min",
    dry_run: DryRun = False,
    json: Json = False,
) -> int:
    """Trains on an emulated fabric, breaks something, and checks that nothing is lost and `doctor` names the cause.

    Exit code 1 when a check fails.
    """
    case, limit_s = chaos_named(name), limit_of(limit)
    if keep is not None and (keep.exists() and (not keep.is_dir() or any(keep.iterdir()))):
        raise ValueError(f"keep: {str(keep)!r} is there and not empty; write a new folder")
    if dry_run:
        print_json({"chaos": case.name, "explained": case.explained, "checks": [], "comparisons": []})
        return 0
    become_root()
    with tempfile.TemporaryDirectory(prefix="shardwise-chaos-") as scratch, spoken() as said:
        folder = Path(scratch) if keep is None else keep
        folder.mkdir(parents=True, exist_ok=True)
        found = play(case, folder, limit_s, said)
        causes = examined(folder).causes
    checks = (*found.checks, _named(case, causes))
    if json:
        print_json({
            "chaos": found.chaos, "explained": found.explained, "checks": checks, "comparisons": found.comparisons,
            "exit_code": found.exit_code, "doctor": causes, "run": found.run,
            "kept": None if keep is None else str(keep),
        })  # fmt: skip
    else:
        _show(found, checks, causes, keep)
    return 0 if all(check.ok for check in checks) else FAILED


def _named(case: ChaosCase, causes: Sequence[CauseFinding]) -> ChaosCheck:
    first = causes[0] if causes else None
    words = "nothing" if first is None else f"{first.what}{f' ({first.where})' if first.where else ''}"
    rank = f", rank {VICTIM}" if case.names_rank else ""
    return ChaosCheck(
        what=f"doctor names the cause first{rank}", found=words,
        ok=first is not None and first.cause in case.doctor and (not case.names_rank or first.rank == VICTIM),
    )  # fmt: skip


def _show(
    found: ChaosResult, checks: tuple[ChaosCheck, ...], causes: Sequence[CauseFinding], keep: Path | None
) -> None:
    print_notes(found.explained, title=found.chaos)
    print_gap()
    told = [f"{'yes' if check.ok else 'NO'}: {check.what}: {check.found}" for check in checks]
    print_notes(told, title="is it as it should be")
    if found.comparisons:
        print_gap()
        print_table("timed", ("", "measured", "predicted"), comparison_rows(found.comparisons), breaks=0)
    notes = [f"doctor: {cause.what}{f' ({cause.where})' if cause.where else ''}: {cause.evidence}" for cause in causes]
    kept = [] if keep is None else [f"kept: {keep}; shardwise why {keep}"]
    print_gap()
    print_notes([*notes, scale_text(found.run), counts_text(found.run), *kept])
