"""`shardwise validate`: predictions held against a table of measured runs."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from shardwise.answers.validate import validate_answer
from shardwise.measured.validate import run
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._options import ProfileFile, profile_or_none
from shardwise.show.cli._output import answered
from shardwise.spec.software import known_stack
from shardwise.whole_file import OutputFile

STDOUT = "-"
MOST_LEARNED = 1000
LEARNED_MOST_LEARNED = 1000
MARK = b'"rows"'
"""how the document begins"""


def validate(
    *,
    data: Annotated[Path, Parameter(help="CSV of measured runs (columns of steps.csv or h200_steps.csv).")],
    failed: Annotated[Path | None, Parameter(help="CSV of configurations that gave no result.")] = None,
    stack: Annotated[str, Parameter(help="auto: chosen from each row's software column; or a stack's name.")] = "auto",
    profile: ProfileFile = None,
    learn: Annotated[
        int | None, Parameter(help="Predict each row from so many others of its source, model and GPU.")
    ] = None,
    seed: Annotated[int, Parameter(help="Of the draw of these others.")] = 0,
    json: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="Write every row and the summary to this file; '-' is stdout."),
    ] = None,
    overwrite: Overwrite = False,
) -> int:
    """Predictions against measured truth: errors, rank, regret and memory, by source."""
    if stack != "auto":
        known_stack(stack)
    _check_learn(learn, seed, failed)
    file = None if json in (None, STDOUT) else OutputFile(Path(json or ""), "json", MARK, overwrite)
    document = run.validate(data, failed=failed, stack=stack, profile=profile_or_none(profile), learn=learn, seed=seed)
    if learn is not None and not document["summary"]["all"]["n"]:
        raise ValueError(f"learn: no group of {learn + 1} runs of one source, model and GPU; write a smaller number")
    if file is not None:
        file.write(msgspec.json.encode(document))
    return answered(validate_answer(data.name, document), json == STDOUT)


def _check_learn(learn: int | None, seed: int, failed: Path | None) -> None:
    if learn is not None and not 0 <= learn <= MOST_LEARNED:
        raise ValueError(f"learn: {learn} runs; write 0 to {MOST_LEARNED}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed: {seed}; write a whole number of 0 or more")
    if learn is not None and failed is not None:
        raise ValueError("failed: runs that gave no result say nothing of step times; leave out --failed or --learn")
