"""PyTorch's flight recorder: a pickle or JSON of one rank. A pickle can run anything when it is loaded by the usual
means; here only numbers, texts and containers are made of it, and whatever else it asks for is refused."""

import io
import pickle
import re
from pathlib import Path
from typing import Any

import msgspec

from shardwise.diagnose.recorder import GroupState, RecordedCall, RecorderDump
from shardwise.importers._file import read_bytes

MOST_ENTRIES = 1_000_000
_LISTS = ("build_intlist", "build_doublelist", "build_boollist")
"""how torch writes lists of one type: (module torch.jit._pickle)"""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and name in _LISTS:
            return list
        if module == "torch.jit._pickle" and name == "restore_type_tag":
            return lambda value, _tag: value
        raise pickle.UnpicklingError(f"it asks for {module}.{name}"[:200])

    def persistent_load(self, _pid: Any) -> Any:
        raise pickle.UnpicklingError("it asks for a stored object")


def read_dump(path: Path) -> RecorderDump:
    raw = read_bytes(path, "run")
    try:
        data = msgspec.json.decode(raw) if raw.lstrip()[:1] == b"{" else _PlainUnpickler(io.BytesIO(raw)).load()
    except Exception as error:  # a damaged pickle can end in nearly any of them
        told = " ".join(str(error)[:150].split())
        raise ValueError(f"run: {path.name} is no dump of a flight recorder ({told}); write it again") from None
    if not isinstance(data, dict) or not isinstance(data.get("entries"), list):
        raise ValueError(f"run: {path.name} has no 'entries'; write a dump of PyTorch's flight recorder")
    entries = [entry for entry in data["entries"][:MOST_ENTRIES] if isinstance(entry, dict)]
    number = re.findall(r"\d{1,9}", path.stem)
    return RecorderDump(
        name=path.name, rank=int(number[-1]) if number else None, groups=tuple(_groups(data, entries)),
        calls=tuple(call for entry in entries if (call := _call(entry)) is not None),
    )  # fmt: skip


def _groups(data: dict[str, Any], entries: list[dict[str, Any]]) -> list[GroupState]:
    config, status = data.get("pg_config"), data.get("pg_status")
    about = {str(key): value for key, value in config.items()} if isinstance(config, dict) else {}
    states = {str(key): value for key, value in status.items()} if isinstance(status, dict) else {}
    used = {_group(entry): entry for entry in entries}
    # gloo keeps its one group under an empty name, and its entries say '0'
    if len(about) == 1 and len(used) == 1:
        about = dict.fromkeys(used, next(iter(about.values())))
    found = []
    for group in dict.fromkeys([*states, *used]):
        state = states.get(group)
        state = state if isinstance(state, dict) else {}
        mine = [entry for entry in entries if _group(entry) == group]
        told = about.get(group)
        told = told if isinstance(told, dict) else {}
        asked = max((_number(entry.get("collective_seq_id")) for entry in mine), default=-1)
        # gloo leaves the state at 'scheduled' and marks what has ended as retired
        done = max((_number(entry.get("collective_seq_id")) for entry in mine
                    if entry.get("state") == "completed" or entry.get("retired") is True), default=-1)  # fmt: skip
        found.append(GroupState(
            group, str(told.get("desc", ""))[:100], tuple(_ranks(told.get("ranks"))),
            max(_number(state.get("last_enqueued_collective")), asked),
            max(_number(state.get("last_completed_collective")), done),
        ))  # fmt: skip
    return found


def _call(entry: dict[str, Any]) -> RecordedCall | None:
    number = _number(entry.get("collective_seq_id"))
    if number < 0 or entry.get("is_p2p") is True:
        return None
    op = str(entry.get("profiling_name", "")).rpartition(":")[2]
    return RecordedCall(
        _group(entry), number, op[:60], repr(entry.get("input_sizes"))[:120], str(entry.get("state"))[:30]
    )


def _group(entry: dict[str, Any]) -> str:
    named = entry.get("process_group")
    if isinstance(named, list | tuple) and named:
        return str(named[0])[:100]
    return str(entry.get("pg_id", ""))[:100]


def _number(value: Any) -> int:
    """JSON has some of them as texts."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        value = int(value)
    return value if type(value) is int and -1 < value < 2**62 else -1


def _ranks(value: Any) -> list[int]:
    if isinstance(value, str):
        return [int(word) for word in re.findall(r"\d{1,9}", value[:40_000])]
    return [each for each in value if type(each) is int][:100_000] if isinstance(value, list) else []
