"""`shardwise calibrate`: measures this machine, or reads what it already measured, and writes a profile."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.calibrate import calibrate_answer
from shardwise.cost.calibrate.profile import Profile
from shardwise.cost.calibrate.profile_toml import MARK, to_toml
from shardwise.show.cli._calibrate_from import profile_from_file
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._options import Json, ProfileFile, option, profile_or_none
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import LogLines
from shardwise.show.cli._torchrun import rank_here
from shardwise.spec.cluster import Cluster
from shardwise.spec.gpu import Gpu
from shardwise.spec.load import cluster_of, gpu_of
from shardwise.spec.parameters import ON
from shardwise.spec.reported import catalog_gpu
from shardwise.user_cache import keep_compiled_code_private
from shardwise.whole_file import OutputFile

INTERRUPTED = 130


def calibrate(
    *,
    out: Annotated[Path, Parameter(help="The profile to write, such as h200.toml.")],
    device: Annotated[str | None, Parameter(help="cuda or cpu; default: cuda where there is a GPU.")] = None,
    quick: Annotated[bool, Parameter(help="Fewer shapes, seconds instead of a minute.")] = False,
    source: Annotated[
        Path | None,
        Parameter(name="--from", help="Do not measure: read nccl-tests output or a profiler trace."),
    ] = None,
    on: Annotated[str, option(ON, help="The cluster measured: dgx-h100:16, 8xh100 or a YAML file.")] = "",
    profile: ProfileFile = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """Measures GEMM, attention, element-wise, optimizer and launch cost here, and collectives under torchrun."""
    file = OutputFile(out, "out", MARK.encode(), overwrite)
    cluster = cluster_of(on) if on else None
    if source is None:
        return _measure(file, device, quick, cluster, json)
    found, notes = profile_from_file(source, profile_or_none(profile), cluster)
    _write(file, found, notes, json)
    return 0


def _measure(out: OutputFile, device: str | None, quick: bool, cluster: Cluster | None, json: bool) -> int:
    try:
        from shardwise.cost.calibrate.measured import calibration
    except ImportError:
        raise ValueError("calibrate measures with torch, which is not installed; install it, or use --from") from None
    rank_here()
    keep_compiled_code_private()
    work = calibration(device, quick=quick, cluster=cluster)
    stopped = False
    with _bar() as progress:
        try:
            for done, of, words in work.run():
                progress(done, of, words)
        except KeyboardInterrupt:
            stopped = True
    if not work.leads:
        return 0
    if not any(work.points.values()):
        return INTERRUPTED
    notes = ["interrupted: the profile holds the measurements made until then"] if stopped else []
    _write(out, work.profile(), notes, json)
    return INTERRUPTED if stopped else 0


@contextmanager
def _bar() -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on stderr where someone watches it, lines elsewhere."""
    if not sys.stderr.isatty():
        lines = LogLines()
        yield lambda done, of, words: lines.count(words, done, of)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("calibrating")
        yield lambda done, of, words: bar.update(task, completed=done, total=of, description=words)


def _write(out: OutputFile, profile: Profile, notes: list[str], json: bool) -> None:
    out.write(to_toml(profile).encode())
    answered(calibrate_answer(str(out.path), profile, _catalog_gpu(profile), notes), json)


def _catalog_gpu(profile: Profile) -> Gpu | None:
    name = catalog_gpu(profile.device) or profile.device
    try:
        return gpu_of(name)
    except ValueError:
        return None
