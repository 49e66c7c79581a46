"""Do launch files survive the way out and back, and do the programs themselves take them? `--json` ends with one line.

targets: forms that can be written, versions counted. round_trips: random policies (tests/launches.py) that a form can
state, written and read again; round_trips_equal: those that came back the same. public_files_tried, public_files_read:
published launch files, restated (tests/formats/public.py), and how many were read as they say. fixes_tried,
fixes_equal: the best changes of one setting, and for each target one of a whole plan, made in those files, and how many
read back as that policy. reported, reported_mape: files whose publisher says how long a step took, and the mean error
of predictions of them; `--table` prints those as in evidence/launch-files.md. parsers_tried, parsers_accepted: programs
whose own parser is installed (`make parsers`), and those that read every file as meant.
mcp_tools_ok: tools of the MCP server that answer the protocol's own client; null, with mcp_why, where it is missing.
log_formats: forms of training logs whose samples give back the times they were written from. trace_gb_s: gigabytes of a
made-up trace (trace_gb, `--trace-gb`) that `why` reads and explains in a second of wall time, start included, and
trace_gb_cpu_s in a second of processor time; trace_rss_bytes: the most memory it held.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from _launch_mcp import mcp_tools_ok
from shardwise import Job, case_of, cluster_of, model_of, report_of, stack_of
from shardwise.programs.formats import (
    Format,
    Known,
    Launch,
    expressed,
    format_of,
    formats,
    read_launch,
    set_up,
    settled,
)
from shardwise.programs.formats._fix import fixed
from shardwise.programs.formats._improve import best_stated, improvements
from shardwise.programs.formats._source import open_document
from shardwise.show.cli._agent_tools import tools
from shardwise.spec.job import precision_of
from shardwise.spec.rules import verdict_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from _launch_runs import log_formats, trace_read  # noqa: E402
from formats.public import PUBLIC  # noqa: E402
from formats.public_files import PublicFile  # noqa: E402
from launches import MODELS, launch_of, policies  # noqa: E402

TRIED = 300
"""random policies for each form"""


def round_trips(name: str, version: str, folder: Path, tried: int) -> tuple[int, int]:
    """(written and read, of those equal)"""
    target, counts = format_of(name), [0, 0]

    @settings(
        max_examples=tried, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(policy=policies(), model=st.sampled_from(MODELS))
    def one(policy, model):  # noqa: ANN001, ANN202
        launch = launch_of(target, policy, model, version)
        if launch is None:
            return
        try:
            launch, _ = expressed(target, launch)
        except ValueError:
            return
        files = target.write(launch).files
        for file, text in files.items():
            (folder / file).write_text(text)
        read, found = read_launch([folder / file for file in files], Known(layers=launch.case.model.layers))
        counts[0] += 1
        counts[1] += read.name == name and settled(found.policy, launch.case) == launch.policy

    one()
    return counts[0], counts[1]


def public_files_read(folder: Path) -> int:
    read = 0
    for file in PUBLIC:
        (folder / file.name).write_text(file.text)
        target, found = read_launch([folder / file.name], Known(file.gpus, file.layers))
        same = all(getattr(found.policy, name) == value for name, value in file.policy.items())
        read += target.name == file.target and same and all(getattr(found, n) == v for n, v in file.facts.items())
    return read


def reported_rows(folder: Path) -> list[tuple[PublicFile, float]]:
    """Files whose publisher says how long a step took, and what is predicted, s."""
    rows = []
    for file in PUBLIC:
        if file.reported is not None:
            launch = judged(file, folder, file.reported.model, file.reported.on, file.reported.stack)
            rows.append((file, report_of(launch.case, launch.policy).step_s))
    return rows


def judged(file: PublicFile, folder: Path, model: str, on: str, stack: str = "") -> Launch:
    (folder / file.name).write_text(file.text)
    shape, cluster = model_of(model), cluster_of(on)
    target, found = read_launch([folder / file.name], Known(cluster.gpus, shape.layers))
    batch = found.global_batch or found.policy.dp * found.policy.micro_batch * found.policy.pp * 4
    job = Job(seq=found.seq or 4096, global_batch=batch, precision=precision_of(found.precision or "bf16"))
    case = case_of(shape, cluster, job, set_up(stack_of(stack or target.stack), found))
    return Launch(case, settled(found.policy, case), found.layers, found.version, model)


def fixes(folder: Path) -> tuple[int, int]:
    """(tried, of those read back as the better policy), on a model and a cluster that the file could be for."""
    tried, equal = 0, 0
    planned: list[Format] = []  # a whole plan takes long: one for each target
    for file in PUBLIC:
        gpus = file.gpus or file.facts.get("gpus") or 8
        experts = file.policy.get("ep", 1) > 1
        model = "mixtral-8x7b" if experts else "llama-3-70b" if gpus > 8 else "llama-3-8b"
        try:
            launch = judged(file, folder, model, f"dgx-h100:{gpus}" if gpus >= 8 else f"{gpus}xh100")
        except ValueError:
            continue  # its layers are not this model's
        case, target = launch.case, format_of(file.target)
        if not verdict_of(case.model, case.cluster, case.job, launch.policy, cure=False).legal:
            continue
        changes = improvements(target, launch)
        if target not in planned:
            planned.append(target)
            changes += [each for each in [best_stated(target, launch)] if each is not None and each.fields]
        for change in changes:
            tried += 1
            try:
                known = Known(case.cluster.gpus, case.model.layers)
                fixed(target, [open_document(folder / file.name)], launch, change.policy, known)
                equal += 1
            except ValueError as error:
                print(f"{file.source}: {error}")
    return tried, equal


def parsers(folder: Path) -> tuple[int, int]:
    """(tried, accepted), from the tests that hold the writers against them."""
    report = folder / "parsers.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}",
               str(ROOT / "tests" / "formats" / "test_parsers.py")]  # fmt: skip
    subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    outcomes: dict[str, list[bool]] = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is None:
            program = case.get("name", "").removeprefix("test_").split("[")[0].split("_")[0]
            outcomes[program].append(case.find("failure") is None and case.find("error") is None)
    return len(outcomes), sum(all(passed) for passed in outcomes.values())


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--json", action="store_true")
    asked.add_argument("--tried", type=int, default=TRIED)
    asked.add_argument("--trace-gb", type=float, default=0.3)
    asked.add_argument("--table", action="store_true", help="only the table of reported steps")
    given_words = asked.parse_args()
    if given_words.table:
        table()
        return
    forms = [(name, version) for name, target in formats().items() for version in target.versions or ("",)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        total, equal = 0, 0
        for name, version in forms:
            written, same = round_trips(name, version, folder, given_words.tried)
            print(f"{name} {version}: {same} of {written} policies came back the same")
            total, equal = total + written, equal + same
        read = public_files_read(folder)
        rows = reported_rows(folder)
        changes, made = fixes(folder)
        tried, accepted = parsers(folder)
        answering, why = mcp_tools_ok(folder)
        trace = trace_read(folder, given_words.trace_gb)
    mape = sum(abs(step / file.reported.step_s - 1) for file, step in rows if file.reported) / len(rows)
    print(f"published files: {read} of {len(PUBLIC)} read as they say; parsers: {accepted} of {tried} accept")
    print(
        f"changes made in published files: {made} of {changes}; reported steps: {len(rows)}, {mape:.1%} off on average"
    )
    print(f"MCP server: {answering} of {len(tools())} tools answer the real client" + (f" ({why})" if why else ""))
    print(f"logs: {log_formats()} forms; a trace of {trace.gb:.2g} GB: {trace}")
    if given_words.json:
        print(json.dumps({
            "targets": len(forms), "round_trips": total, "round_trips_equal": equal, "parsers_tried": tried,
            "parsers_accepted": accepted, "public_files_read": read, "public_files_tried": len(PUBLIC),
            "mcp_tools": len(tools()), "mcp_tools_ok": answering, "mcp_why": why or None,
            "log_formats": log_formats(), "trace_gb": round(trace.gb, 3), "trace_gb_s": round(trace.gb_s, 4),
            "trace_gb_cpu_s": round(trace.gb_cpu_s, 4), "trace_rss_bytes": trace.rss_bytes,
            "fixes_tried": changes, "fixes_equal": made, "reported": len(rows), "reported_mape": round(mape, 4),
        }))  # fmt: skip


def table() -> None:
    """Markdown of evidence/launch-files.md."""
    print("| file | on | reported s | predicted s | error |\n| --- | --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as place:
        for file, step in reported_rows(Path(place)):
            if file.reported is not None:
                said = file.reported
                print(f"| {file.source} | {said.model}, {said.on} | {said.step_s:g} | {step:.4g} | "
                      f"{step / said.step_s - 1:+.1%} |")  # fmt: skip


if __name__ == "__main__":
    main()
