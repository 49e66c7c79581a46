"""Lines by which programs, launchers, drivers and kernels say that something broke, and what each means."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

LEVELS = ("cause", "exception", "exit", "symptom")
"""how much a line explains, the most telling first"""
UNEXPLAINED = "unexplained"
LONGEST = 4000
SHOWN = 500
LAST_LINES = 100
"""in which an error that fits no kind may end a log"""
AFTER_TRACEBACK = 400
"""lines within which an exception is the one of the traceback above it"""
TABLE = 12
"""lines of torchrun's table of a failure"""
_RANK = re.compile(r"\[rank\s?(\d{1,6})\]|\brank:?\s*(\d{1,6})\b", re.I)
_SILENT = re.compile(r"no sign of rank (\d{1,6})|\branks? (\d{1,6}) failed to pass monitored ?barrier", re.I)
_DIGITS = re.compile(r"[0-9]+")
_TOKEN = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|\(\?[:=!]|\{[0-9,]*\}|.", re.S)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
_EXCEPTION = re.compile(
    r"(?:^|[\s\]|)>:])((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception|Exit|Interrupt|Failure))(?::\s|\s*$)"
)
_LAUNCHER = re.compile(
    r"ChildFailedError|torch\.distributed\.elastic|CalledProcessError|\bSystemExit\b|ProcessRaisedException|RayActorError|ActorDiedError"
)
_NOTICED = re.compile(r"\bDistBackendError\b|\bnccl(?:Internal|System|Remote|UnhandledCuda)Error\b")
"""exceptions by which ranks notice that others failed"""
_WARNING = re.compile(r"^.{0,60}\[W\d{0,4}\b")
_TAGS = re.compile(r"(?:\[[^\]]{1,60}\]:?\s*|[\w.-]{1,60}:\s+|\([^)]{1,60}\)\s*)*")
"""by which launchers begin the lines of their ranks"""
_NAMES_ONLY = re.compile(r"^\s*(?:from\s|import\s|raise\s|except\b|#|File \"|W\d{4} |WARNING|INFO)")
_ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\)", re.I)
_ADVICE = re.compile(
    r"Some common causes include|There are some potential root causes|Possible (?:causes|reasons)|TORCH_USE_CUDA_DSA",
    re.I,
)
"""what follows may have happened or not"""
_ERROR = re.compile(
    r"^E\d{4} \d\d:|(?:^|[\s\[(|:])(?:ERROR|FATAL|CRITICAL|[Ee]rror|[Ff]atal(?: error)?|panic)(?:\]|:| -)\s*\S"
)


@dataclass(frozen=True)
class FailureKind:
    code: str
    name: str
    cure: str
    level: str
    everywhere: bool
    """all ranks say it alike: the one that a line names is not its place"""


@dataclass(frozen=True)
class FailureLine:
    code: str
    text: str
    rank: int | None
    line: int
    at_s: float | None
    weak: bool = False
    """a warning, or an exception by which a rank only noticed that something failed: no cause beside others"""


@cache
def failure_kinds() -> dict[str, FailureKind]:
    """Kind by code, the more telling first."""
    return {
        kind["code"]: FailureKind(
            kind["code"], kind["name"], kind["cure"], kind["level"], kind.get("everywhere", False)
        )
        for kind in _table()
    }


@cache
def _table() -> list[dict[str, Any]]:
    text = (files("shardwise.measured.diagnose") / "failures.toml").read_text(encoding="utf-8")
    return list(tomllib.loads(text)["kind"])


@cache
def _forms() -> list[tuple[str, re.Pattern[str], FailureKind]]:
    """(letters that a matching line has, form, kind), in the order of belief."""
    kinds = failure_kinds()
    return [
        (_letters(form), re.compile(form, re.I), kinds[entry["code"]]) for entry in _table() for form in entry["forms"]
    ]


def _letters(form: str) -> str:
    """The longest run of plain letters that every match of a form contains, in lower case; empty where none is sure."""
    runs, run, depth = [""], "", 0
    for token in _TOKEN.findall(form):
        if token == "|" and depth == 0:
            return ""
        if token[0] in "?*{":
            run = run[:-1]
        plain = depth == 0 and (
            token[-1] in ".:/-_'<>`(),=" if token[0] == "\\" else token[-1].isalpha() or token in " :/-_'<>`,="
        )
        if plain:
            run += token[-1].lower()
        else:
            runs.append(run)
            run = ""
        depth += (token[0] == "(") - (token == ")")
    return max([*runs, run], key=len)


@lru_cache(maxsize=50_000)
def _candidates(letters: str) -> tuple[int, ...]:
    """Forms that a line with these letters may match."""
    return tuple(number for number, (run, _, _) in enumerate(_forms()) if run in letters)


def _matching(line: str) -> Iterator[FailureKind]:
    forms = _forms()
    line = _ADVICE.split(line, maxsplit=1)[0]
    for number in _candidates(_DIGITS.sub("0", line.lower())):
        _, form, kind = forms[number]
        if form.search(line):
            yield kind


def sign_of(line: str) -> tuple[str, int | None] | None:
    """(code, rank that is meant) of one line."""
    line = line[:LONGEST]
    kind = next(_matching(line), None)
    if kind is not None:
        return kind.code, _rank(line)
    if _TRACEBACK.search(line) or (_EXCEPTION.search(line) and not _LAUNCHER.search(line)):
        return "crash", _rank(line)
    return None


def _rank(line: str) -> int | None:
    named = _SILENT.search(line) or _RANK.search(line)
    return int(next(number for number in named.groups() if number)) if named else None


def names_missing(line: str) -> bool:
    """Whether the rank of a line is the one that did not come, not the one that writes."""
    return _SILENT.search(line) is not None


def failures_of(lines: Sequence[str], at: Iterable[float | None]) -> list[FailureLine]:
    """Failure lines of one log. A traceback counts by its exception, torchrun's table by its first failure; where the
    end of a log says error and fits no kind, that line is kept as unexplained."""
    found: list[FailureLine] = []
    traceback = table = -AFTER_TRACEBACK
    root: FailureLine | None = None
    for number, (line, at_s) in enumerate(zip(lines, at, strict=True)):
        line = line[:LONGEST]
        if _TRACEBACK.search(line):
            traceback = number
            continue
        if _ROOT_CAUSE.search(line):
            table, root = number, FailureLine("crash", "", None, number, at_s)
        if root is not None and number - table < TABLE:
            root = _with_field(root, line)
            continue
        kind = _kind_of(line, in_traceback=number - traceback < AFTER_TRACEBACK)
        if kind is not None:
            weak = _WARNING.search(line) is not None or (kind == "crash" and _NOTICED.search(line) is not None)
            found.append(FailureLine(kind, line.strip()[:SHOWN], _rank(line), number, at_s, weak))
    if root is not None and root.text:
        found.append(root)
    return found or _unexplained(lines)


def _kind_of(line: str, *, in_traceback: bool) -> str | None:
    if _NAMES_ONLY.match(line) and not _EXCEPTION.search(line):
        return _quiet(line)
    for kind in _matching(line):
        if kind.level == "exception" and not (in_traceback or _EXCEPTION.search(line) or _ERROR.search(line)):
            continue
        return kind.code
    raised = _EXCEPTION.search(line)
    begins = raised is not None and _TAGS.fullmatch(line, 0, raised.start(1)) is not None
    return "crash" if raised and (in_traceback or begins) and not _LAUNCHER.search(line) else None


def _quiet(line: str) -> str | None:
    """Of source lines and warnings only what says why or how a process ended."""
    if re.match(r"^\s*(?:from\s|import\s|raise\s|except\b|#|File \")", line):
        return None
    sign = sign_of(line)
    return sign[0] if sign and (failure_kinds()[sign[0]].level == "cause" or sign[0] == "stopped") else None


def _with_field(root: FailureLine, line: str) -> FailureLine:
    """One field of torchrun's table: rank, host, exit code, traceback."""
    name, _, value = (part.strip() for part in line.partition(":"))
    if name.lower() == "rank" and (digits := re.match(r"\d{1,6}", value)):
        return FailureLine(root.code, root.text, int(digits[0]), root.line, root.at_s)
    if name.lower() in ("host", "exitcode", "traceback") and value and not value.startswith("To enable"):
        sign = sign_of(f"{name} : {value}")
        code = sign[0] if sign and root.code == "crash" else root.code
        text = (
            f"{root.text}, {name.lower()} {value}" if root.text else f"first observed failure: {name.lower()} {value}"
        )
        return FailureLine(code, text[:SHOWN], root.rank, root.line, root.at_s)
    return root


def _unexplained(lines: Sequence[str]) -> list[FailureLine]:
    first = max(len(lines) - LAST_LINES, 0)
    for number, line in enumerate(lines[first:], first):
        if _TRACEBACK.search(line) or (_ERROR.search(line[:LONGEST]) and not _NAMES_ONLY.match(line)):
            return [FailureLine(UNEXPLAINED, line.strip()[:SHOWN], _rank(line[:LONGEST]), number, None)]
    return []
