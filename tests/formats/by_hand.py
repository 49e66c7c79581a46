"""Command lines of public scripts with their settings as read by hand: what is read of them, field by field.

`by_hand.toml`: a label names the program and its values; `-`: of no program that is read, or without a file that
decides; `?`: read rightly or refused. `parts`: that only some parts are trained has to be said. Labels of `set_aside`
were written before the files were first read. `files` holds settings of files that the command lines name.
"""

import json
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from formats.script_corpus import launches, recorded
from shardwise.programs.formats import Found, read_launch

LABELS = Path(__file__).with_suffix(".toml")
POLICY = {"micro": "micro_batch"}
FACTS = {"batch": "global_batch", "gpus": "gpus", "seq": "seq", "precision": "precision", "tune": "tune"}
ALIKE = {"micro": ("micro_batch", "micro_train"), "batch": ("batch",), "tp": ("tensor",), "tune": ("lora", "adapter"),
         "gpus": ("ranks", "nodes"), "seq": ("length", "seq")}  # fmt: skip
"""words by which a note names a value that is read otherwise"""


@dataclass(frozen=True)
class ByHand:
    source: str
    program: str
    """empty: refused; '?': either"""
    fields: Mapping[str, str]
    text: str
    beside: Mapping[str, str]


@dataclass(frozen=True)
class Judged:
    right: int = 0
    named: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    """values that differ and that nothing names"""
    refused_wrongly: str = ""


def labelled(half: str) -> list[ByHand]:
    data = tomllib.loads(LABELS.read_text(encoding="utf-8"))
    calls = {f"{script.repository}:{script.path}": max(filter(launches, script.calls), key=len, default=script.calls[0])
             for script in recorded()}  # fmt: skip
    rows = []
    for source, label in data[half].items():
        program, *values = label.split()
        fields = {name: value for name, _, value in (each.partition("=") for each in values)}
        beside = {name.partition(":")[2]: json.dumps(content) for name, content in data["files"].items()
                  if name.partition(":")[0] == source.partition(":")[0]}  # fmt: skip
        text = shlex.join(calls[source]).replace("@/", "") + "\n"
        rows.append(ByHand(source, "" if program == "-" else program, fields, text, beside))
    return rows


def judged(file: ByHand, folder: Path) -> Judged:
    (folder / "run.sh").write_text(file.text, encoding="utf-8")
    for name, content in file.beside.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    try:
        program, found = read_launch([folder / "run.sh"])
    except ValueError as error:
        return Judged(refused_wrongly="" if file.program in ("", "?") else str(error))
    if not file.program:
        return Judged(silent=(f"read as {program.name}",))
    said = " ".join((*found.not_modelled, *found.notes)).lower()
    right, named, silent = 0, list[str](), list[str]()
    if file.program not in ("?", program.name):
        silent.append(f"program {program.name}")
    for name, value in file.fields.items():
        ours = _value(name, found, said)
        if ours == value or (name == "tune" and ours.startswith(value)):
            right += 1
        elif any(word in said for word in ALIKE.get(name, (name,))):
            named.append(f"{name} {ours}, not {value}")
        else:
            silent.append(f"{name} {ours}, not {value}")
    return Judged(right, tuple(named), tuple(silent))


def _value(name: str, found: Found, said: str) -> str:
    if name == "parts":
        return "" if "which parts are trained" in said or found.freeze else "not said"
    if name in FACTS:
        return str(getattr(found, FACTS[name]))
    return str(getattr(found.policy, POLICY.get(name, name)))
