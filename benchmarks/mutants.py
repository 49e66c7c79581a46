"""Do the tests notice a wrong number? Seeded mutants of the source, each against the tests that run its function.

`python benchmarks/mutants.py --json` collects the tests once, notes which functions each of them calls, then forks a
process for every mutant, changes the one function in memory and runs those tests, the quickest first, until one fails.
Nothing is written to the source. It ends with one line of JSON:
- mutants, killed (share), survived (each with file, line, change), untested (no test calls the function), by_room

`--count`, `--seed` and `--rooms work,cost` choose others; `--limit` is the processor time one mutant may take. The work
can be cut: `--part 2/8` tries the second of eight parts of the same mutants, and `--calls FILE` keeps which test calls
what, once known, for the next part.
"""

import argparse
import gc
import importlib
import json
import os
import resource
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest

from _mutations import Mutant, code_of, constant_of, mutants_of

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "shardwise"
ROOMS = ("work", "cost", "step", "fabric", "plugins", "programs", "spec", "run/runtime")
LEFT_OUT = ("page", "lab", "docs", "e2e", "fuzz", "plugins", "engines", "auto", "trace", "search", "preflight")
"""tests of rooms that are not changed here, or that start the command line again, where a change in memory is lost"""
COUNT, SEED, LIMIT_S = 200, 7, 240
BROKEN = 70
"""exit code of a process that could not do its work"""
Key = tuple[str, str]
"""file and qualified name of a function"""


class Mutations:
    """A pytest plug-in: takes over where the collected tests would run."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.summary: dict[str, Any] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        calls, spent = _kept_calls(session.items, self.given.calls)
        testing: dict[Key, list[int]] = defaultdict(list)
        for number, keys in calls.items():
            for key in keys:
                testing[key].append(number)
        rooms = self.given.rooms.split(",") if self.given.rooms else ROOMS
        files = sorted(path for room in rooms for path in (SOURCE / room).rglob("*.py"))
        part, parts = map(int, self.given.part.split("/"))
        mutants = mutants_of(files, self.given.count, self.given.seed)[part - 1 :: parts]
        endings = []
        for mutant in mutants:
            numbers = sorted(_tests_of(mutant, testing), key=lambda number: spent[number])
            ending = _ending(mutant, [session.items[number] for number in numbers], self.given.limit)
            endings.append(ending)
            place = f"{mutant.file.relative_to(SOURCE)}:{mutant.line}"
            print(f"{ending:9} {place:44} {mutant.kind:12} {mutant.change[:120]}", flush=True)
        self.summary = _summary(mutants, endings)
        return True


def _kept_calls(items: list[pytest.Item], kept: Path | None) -> tuple[dict[int, set[Key]], dict[int, float]]:
    """By number of the test, as `_calls` returns them; the file keeps them by name, and only new tests are followed."""
    known = json.loads(kept.read_text(encoding="utf-8")) if kept is not None and kept.exists() else {}
    numbers = {items[n].nodeid: n for n in range(len(items))}
    calls, spent = _calls(items, [n for name, n in numbers.items() if name not in known])
    known |= {items[n].nodeid: (spent[n], sorted(keys)) for n, keys in calls.items()}
    if kept is not None:
        kept.write_text(json.dumps(known), encoding="utf-8")
    there = {n: known[name] for name, n in numbers.items() if name in known}
    calls = {n: {(file, function) for file, function in keys} for n, (_, keys) in there.items()}
    return calls, {n: seconds for n, (seconds, _) in there.items()}


def _calls(items: list[pytest.Item], wanted: list[int]) -> tuple[dict[int, set[Key]], dict[int, float]]:
    """Functions of the source that each test calls, and the processor time it takes; a process for each file of tests,
    so that nothing computed for one file is kept for the next."""
    calls: dict[int, set[Key]] = {}
    spent: dict[int, float] = {}
    by_file: dict[Path, list[int]] = defaultdict(list)
    for number in wanted:
        by_file[items[number].path].append(number)
    for file, numbers in by_file.items():
        print(f"calls of {file.relative_to(ROOT)}", file=sys.stderr, flush=True)
        found = _forked(lambda numbers=numbers: _followed(items, numbers), LIMIT_S * 2)
        for number, keys, seconds in found or ():
            calls[number], spent[number] = {(file, name) for file, name in keys}, seconds
    return calls, spent


def _followed(items: list[pytest.Item], numbers: list[int]) -> list[tuple[int, list[Key], float]]:
    """In a file, because ranks that a test forks write into it, too."""
    answers, top = [], str(SOURCE)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        codes: set[CodeType] = set()

        def called(frame: FrameType, _event: str, _: Any) -> None:
            code = frame.f_code
            if code not in codes:
                codes.add(code)
                if code.co_filename.startswith(top):
                    os.write(file.fileno(), f"{code.co_filename}\t{code.co_qualname.split('.<')[0]}\n".encode())

        for number in numbers:
            codes.clear()
            os.ftruncate(file.fileno(), 0)
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            before = sum(os.times()[:4])
            sys.settrace(called)
            failed = _fails(items[number])
            sys.settrace(None)
            if not failed:
                size = os.lseek(file.fileno(), 0, os.SEEK_END)
                lines = os.pread(file.fileno(), size, 0).decode().splitlines()
                keys = {(path, name) for path, _, name in (line.partition("\t") for line in lines)}
                answers.append((number, sorted(keys), sum(os.times()[:4]) - before))
    return answers


def _tests_of(mutant: Mutant, testing: dict[Key, list[int]]) -> set[int]:
    file = str(mutant.file)
    if mutant.function:
        return set(testing.get((file, mutant.function), ()))
    return {number for (path, _), numbers in testing.items() if path == file for number in numbers}


def _ending(mutant: Mutant, items: list[pytest.Item], limit: float) -> str:
    if not items:
        return "untested"

    def tried() -> str:
        if not _applied(mutant):
            return "no place"
        began = time.process_time()
        for item in items:
            try:
                failed = _fails(item)
            except BaseException:  # pytest itself gave up
                failed = True
            if failed:
                return "killed"
            if time.process_time() - began > limit:
                return "survived"
        return "survived"

    return _forked(tried, limit * 3) or "killed"


def _applied(mutant: Mutant) -> bool:
    """The mutant in place of the function or the constant it changes."""
    if not mutant.function:
        return _set_constant(mutant)
    code = code_of(mutant)
    _module_of(mutant)  # tests that import it late did so in a process of their own
    functions = [
        each for each in gc.get_objects()
        if type(each) is FunctionType and each.__code__.co_filename == str(mutant.file)
        and (each.__code__.co_qualname, each.__code__.co_firstlineno) == (mutant.function, mutant.first_line)
    ]  # fmt: skip
    for each in functions:
        if code is None or len(code.co_freevars) != len(each.__code__.co_freevars):
            return False
        each.__code__ = code
    return bool(functions)


def _set_constant(mutant: Mutant) -> bool:
    named = constant_of(mutant)
    if named is None:
        return False
    name, value = named
    module = _module_of(mutant)
    before = getattr(module, name)
    for each in list(sys.modules.values()):
        if getattr(each, "__dict__", {}).get(name) is before:
            setattr(each, name, value)
    return True


def _module_of(mutant: Mutant) -> ModuleType:
    parts = mutant.file.relative_to(SOURCE.parent).with_suffix("").parts
    return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


def _fails(item: pytest.Item) -> bool:
    """Whether the test fails; a test that is skipped does not."""
    from _pytest.runner import runtestprotocol

    item.config.option.verbose = -2
    reports = runtestprotocol(item, log=False, nextitem=None)
    return any(report.failed for report in reports)


def _forked(work: Callable[[], Any], limit: float) -> Any:
    """What `work` returns in a process of its own; None where that was killed or took longer than the limit."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            with os.fdopen(writing, "w", encoding="utf-8") as pipe:
                json.dump(work(), pipe)
            os._exit(0)
        finally:
            os._exit(BROKEN)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) == BROKEN:
        raise RuntimeError("a mutant was neither applied nor tried: its process ended with an exception")
    return json.loads(answer) if answer else None


def _summary(mutants: list[Mutant], endings: list[str]) -> dict[str, Any]:
    pairs = [(m, e) for m, e in zip(mutants, endings, strict=True) if e != "no place"]
    rooms = {m.file.relative_to(SOURCE).parts[0] for m, _ in pairs}
    counted = {room: Counter(e for m, e in pairs if m.file.relative_to(SOURCE).parts[0] == room) for room in rooms}
    lived = [{"file": str(m.file.relative_to(ROOT)), "line": m.line, "kind": m.kind, "change": m.change, "ending": e}
             for m, e in pairs if e != "killed"]  # fmt: skip
    killed = sum(e == "killed" for _, e in pairs)
    return {
        "mutants": len(pairs),
        "killed": round(killed / max(len(pairs), 1), 4),
        "by_room": {room: dict(counts) for room, counts in sorted(counted.items())},
        "survived": lived,
    }


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--json", action="store_true", help="end with one line of JSON")
    reader.add_argument("--count", type=int, default=COUNT)
    reader.add_argument("--seed", type=int, default=SEED)
    reader.add_argument("--rooms", default="", help="of the source, with commas between; all that compute by default")
    reader.add_argument("--tests", default="", help="rooms of the tests, with commas between; all but slow ones")
    reader.add_argument("--part", default="1/1", help="of the mutants, as 2/8")
    reader.add_argument("--calls", type=Path, help="file that keeps which test calls what")
    reader.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of processor time for one mutant")
    given = reader.parse_args()
    given.calls = given.calls and given.calls.absolute()
    os.chdir(ROOT)
    if given.tests:
        folders = [f"tests/{room}" for room in given.tests.split(",")]
    else:
        folders = [str(p) for p in sorted((ROOT / "tests").iterdir()) if p.is_dir() and p.name not in LEFT_OUT]
    plugin = Mutations(given)
    pytest.main(["-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", *folders], plugins=[plugin])
    for each in plugin.summary.get("survived", ()):
        print(f"{each['ending']}: {each['file']}:{each['line']}  {each['change']}")
    if given.json:
        print(json.dumps(plugin.summary))
    return 0 if plugin.summary else 1


if __name__ == "__main__":
    sys.exit(main())
