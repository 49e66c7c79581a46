"""PyTorch's flight recorder: a pickle or JSON of one rank. A pickle is read as data (`plain_pickle`): whatever it asks
for beside numbers, texts and containers is refused."""

import re
from collections import defaultdict
from pathlib import Path
from reprlib import Repr
from typing import Any

from shardwise.bounded import json_of
from shardwise.measured.diagnose.recorder import GroupState, RecordedCall, RecorderDump
from shardwise.programs.importers._file import read_bytes
from shardwise.programs.importers.plain_pickle import load

MOST_ENTRIES = 1_000_000
_SHORT = Repr()
_SHORT.maxlist = _SHORT.maxtuple = 16
_SHORT.maxlevel = 3


def read_dump(path: Path) -> RecorderDump:
    raw = read_bytes(path, "run")
    try:
        data = json_of(raw) if raw[:4096].lstrip()[:1] == b"{" else load(raw)
    except ValueError as error:
        told = " ".join(str(error)[:150].split())
        raise ValueError(f"run: {path.name} is not a flight recorder dump ({told}); write it again") from None
    if not isinstance(data, dict) or not isinstance(data.get("entries"), list):
        raise ValueError(f"run: {path.name} has no 'entries'; write a dump of PyTorch's flight recorder")
    entries = [entry for entry in data["entries"][:MOST_ENTRIES] if isinstance(entry, dict)]
    number = re.findall(r"\d{1,9}", path.stem)
    return RecorderDump(
        name=path.name, rank=int(number[-1]) if number else None, groups=tuple(_groups(data, entries)),
        calls=tuple(call for entry in entries if (call := _call(entry)) is not None),
    )  # fmt: skip


def _groups(data: dict[str, Any], entries: list[dict[str, Any]]) -> list[GroupState]:
    """Groups by name: `pg_id`, the key of `pg_status`, counts the groups of one rank and means another on the next."""
    config, status = data.get("pg_config"), data.get("pg_status")
    about = {_text(key, 100): value for key, value in config.items()} if isinstance(config, dict) else {}
    states = {_text(key, 100): value for key, value in status.items()} if isinstance(status, dict) else {}
    used: dict[str, list[dict[str, Any]]] = defaultdict(list)
    local: dict[str, str] = {}
    for entry in entries:
        name = _group(entry)
        used[name].append(entry)
        local.setdefault(_text(entry.get("pg_id"), 100), name)
    # gloo keeps its one group under an empty name, and its entries say '0'
    if len(about) == 1 and len(used) == 1:
        about = dict.fromkeys(used, next(iter(about.values())))
    named = {local.get(key, key if not local else ""): state for key, state in states.items()}
    named.pop("", None)
    return [_state(group, named.get(group), about.get(group), used.get(group, []))
            for group in dict.fromkeys([*named, *used, *filter(None, about)])]  # fmt: skip


def _state(group: str, state: Any, about: Any, entries: list[dict[str, Any]]) -> GroupState:
    state = state if isinstance(state, dict) else {}
    about = about if isinstance(about, dict) else {}
    calls = [entry for entry in entries if entry.get("is_p2p") is not True]
    last = max((_number(entry.get("collective_seq_id")) for entry in calls), default=-1)
    # gloo leaves the state at 'scheduled' and marks what has ended as retired
    done = max((_number(entry.get("collective_seq_id")) for entry in calls
                if entry.get("state") == "completed" or entry.get("retired") is True), default=-1)  # fmt: skip
    return GroupState(
        group, _text(about.get("desc"), 100),
        max(_number(state.get("last_enqueued_collective")), last),
        max(_number(state.get("last_completed_collective")), done),
        tuple(int(digits) for digits in re.findall(r"\d{1,7}", _text(about.get("ranks"), 100_000))),
    )  # fmt: skip


def _call(entry: dict[str, Any]) -> RecordedCall | None:
    number = _number(entry.get("collective_seq_id"))
    if number < 0 or entry.get("is_p2p") is True:
        return None
    op = _text(entry.get("profiling_name"), 1000).rpartition(":")[2]
    sizes = _SHORT.repr(entry.get("input_sizes"))[:120]
    return RecordedCall(_group(entry), number, op[:60], sizes, _text(entry.get("state"), 30))


def _group(entry: dict[str, Any]) -> str:
    named = entry.get("process_group")
    if isinstance(named, list | tuple) and named:
        return _text(named[0], 100)
    return _text(entry.get("pg_id"), 100)


def _text(value: Any, longest: int) -> str:
    """Of a text or a number; a container may be far larger than the file."""
    return str(value)[:longest] if isinstance(value, str | int | float) else ""


def _number(value: Any) -> int:
    """JSON has some of them as texts."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        value = int(value)
    return value if type(value) is int and -1 < value < 2**62 else -1
