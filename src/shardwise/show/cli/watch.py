"""`shardwise watch`: a run while it goes on, beside its prediction, with causes and cures when it leaves its band."""

import sys
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Annotated

from cyclopts import Group, Parameter
from msgspec.structs import replace as with_fields

from shardwise.answers._why_question import RunAsMeant
from shardwise.answers.doctor import cause_finding
from shardwise.answers.watch import alarm_text
from shardwise.cost.calibrate.profile_toml import MARK
from shardwise.measured.diagnose.counters import CounterSeries
from shardwise.measured.diagnose.health.alarms import Alarms
from shardwise.measured.diagnose.health.status import RunStatus
from shardwise.programs.exporters.grafana import dashboard_bytes
from shardwise.programs.exporters.prometheus import LOOPBACK, serve_metrics
from shardwise.programs.importers.counters import read_counters
from shardwise.screen import on_screen
from shardwise.show.cli._files import Overwrite, figure_file
from shardwise.show.cli._logged_run import write_learned
from shardwise.show.cli._options import Json, within
from shardwise.show.cli._output import answered
from shardwise.show.cli._watched import Look, is_over, look_at, page_of
from shardwise.show.cli._why_case import WhyFlags, ran_of
from shardwise.whole_file import OutputFile

WATCHING = Group("Watching")
DASHBOARD_MARK = b'"title": "shardwise: a training run"'


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WatchFlags(WhyFlags):
    once: Annotated[bool, Parameter(group=WATCHING, negative=(), help="Check once, report, and exit.")] = False
    every: Annotated[float, Parameter(group=WATCHING, help="Seconds between two looks."), within(0.05, 3600)] = 5.0
    idle: Annotated[
        float,
        Parameter(group=WATCHING, help="Exit after this many seconds without a sign of the run."),
        within(0, 1e9, above=True),
    ] = 600.0
    counters: Annotated[
        list[Path] | None,
        Parameter(group=WATCHING, consume_multiple=True,
                  help="Counters to judge and lay over the steps: nvidia-smi, DCGM, ethtool -S, rdma statistic, "
                       "switch CSV, NCCL Inspector's JSON."),
    ] = None  # fmt: skip
    prometheus: Annotated[
        int | None, Parameter(group=WATCHING, help="Port to answer Prometheus at; 0: a free one.")
    ] = None
    address: Annotated[str, Parameter(group=WATCHING, help="Where that port listens.")] = LOOPBACK
    dashboard: Annotated[Path | None, Parameter(group=WATCHING, help="Write a dashboard for Grafana there.")] = None
    html: Annotated[Path | None, Parameter(group=WATCHING, help="Write the run as one page when watching ends.")] = None
    learned: Annotated[
        Path | None,
        Parameter(
            group=WATCHING, help="Write the profile that the run makes, when watching ends; with --profile: more of it."
        ),
    ] = None


NO_FLAGS = WatchFlags()


def watch(
    run: Annotated[Path, Parameter(help="Folder of records (run --records), or the log of any known program.")],
    /,
    flags: WatchFlags = NO_FLAGS,
    *,
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """Step time against the prediction, the slow rank, exposed communication, data, memory, saves, goodput so far.

    Follows the run until it ends; alarms go to stderr. Exit code 1 when an alarm stands at the end.
    """
    if flags.prometheus is not None and not 0 <= flags.prometheus < 65536:
        raise ValueError(f"prometheus: {flags.prometheus} is not a port; write 0 to 65535")
    page = figure_file(flags.html, overwrite, "html")
    board = OutputFile(flags.dashboard, "dashboard", DASHBOARD_MARK, overwrite) if flags.dashboard else None
    counters = _counters(flags)
    ran = ran_of(flags, None)
    learned = None if flags.learned is None else OutputFile(flags.learned, "learned", MARK.encode(), overwrite)
    if learned is not None and ran is None:
        raise ValueError("learned: no step was predicted; write --config with the launch file, or --model")
    watched = _Watching(run, ran, counters)
    watched.look(at_once=flags.once)
    if board is not None:
        board.write(dashboard_bytes())
    if flags.prometheus is not None:
        port = serve_metrics(flags.prometheus, flags.address, watched.current)
        print(f"metrics at http://{flags.address}:{port}/metrics", file=sys.stderr, flush=True)
    if not flags.once:
        watched.follow(flags.every, flags.idle)
    last = watched.last
    if page is not None:
        page.write(on_screen(page_of(last, watched.alarms.up, counters)).encode())
    answer = last.answer(watched.alarms, ran)
    if learned is not None:
        said = write_learned(learned, flags, run.name, last.status)
        answer = with_fields(answer, notes=[*answer.notes, said])
    return answered(answer, json)


class _Watching:
    def __init__(self, path: Path, ran: RunAsMeant | None, counters: tuple[CounterSeries, ...]) -> None:
        self.path, self.ran, self.counters = path, ran, counters
        self.alarms = Alarms()
        self.alive = False
        self.last: Look

    def look(self, *, at_once: bool = False) -> None:
        self.last = look_at(self.path, self.ran, self.counters, seen_alive=self.alive)
        self.alive = self.alive or self.last.status.state == "goes on"
        raised, lowered = self.alarms.look(self.last.causes, at_once=at_once)
        for cause in raised if not at_once else ():
            print(on_screen(f"alarm: {alarm_text(cause_finding(cause))}"), file=sys.stderr, flush=True)
        for cause in lowered:
            print(on_screen(f"over: {cause.what} {cause.where}".rstrip()), file=sys.stderr, flush=True)

    def follow(self, every_s: float, idle_s: float) -> None:
        """Ctrl-C ends the watching, not the run, and what was seen is told."""
        try:
            while not is_over(self.last, idle_s):
                if sys.stderr.isatty():
                    print(f"\r\x1b[K{on_screen(self.last.line)}", end="", file=sys.stderr, flush=True)
                sleep(every_s)
                self.look()
        except KeyboardInterrupt:
            pass
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        # the end of a run comes once: what stands then needs no second look
        self.alarms.look(self.last.causes, at_once=True)

    def current(self) -> tuple[RunStatus, dict[str, int], list[str]]:
        return self.last.status, self.alarms.count, [cause.code for cause in self.alarms.up]


def _counters(flags: WatchFlags) -> tuple[CounterSeries, ...]:
    return tuple(series for path in flags.counters or () for series in read_counters(path))
