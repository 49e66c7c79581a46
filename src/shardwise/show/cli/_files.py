"""The files verbs write, each known again by a mark of its kind, and the option that replaces what is none of them."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.report.charts.drawing import MARK as SVG
from shardwise.report.timeline_page import MARK as PAGE
from shardwise.show.cli._options import ACTS
from shardwise.show.cli._shown import RARE
from shardwise.whole_file import OutputFile

Overwrite = Annotated[
    bool, ACTS, Parameter(negative=(), show=RARE, help="Replace a file that shardwise did not write.")
]


def figure_file(path: Path | None, overwrite: bool, flag: str = "figure") -> OutputFile | None:
    """An SVG, or a page where the name says so."""
    if path is None:
        return None
    return OutputFile(path, flag, (PAGE if path.suffix == ".html" else SVG).encode(), overwrite)
