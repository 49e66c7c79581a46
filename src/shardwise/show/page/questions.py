"""What the page may ask: verbs and their options by name, as a browser sends them, turned into a command line.

Only options that are listed here reach a verb, none of them writes, and a word that could lead to a file of this
machine is refused.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from shardwise.question.posttrain import NAMED
from shardwise.spec.lengths import NUMBERS
from shardwise.spec.parameter import CLUSTER, JOB, OVERLAP, POLICY, PROGRAM
from shardwise.spec.parameters import flag_of, parameters

STATIC = Path(__file__).parent / "static"
Value = str | int | float | bool | tuple[str, ...]
MOST_WORDS = 64
MOST_OPTIONS = 60
LONGEST_WORD = 400
LONGEST_FILE = 2**20
"""bytes of a configuration that was dropped on the page"""
LONGEST_PACKED = 8 * 2**20
"""bytes of a trace that was, as gzip packs it"""
PACKED = ".gz"
READS = {"check": "launch", "why": "trace"}
"""verbs that look at files, and the field such a file is dropped on; they take no others than what was sent"""
NOT_ON_THE_PAGE = ("profile", "no_profile", "lengths", "packing", "sync")
"""parameters that read files, or that few verbs answer for"""
OF_THE_RUN = ("tokens", "failures")
_NAME = re.compile(r"^[A-Za-z0-9][\w.-]{0,80}\.(json|ya?ml|toml|sh|slurm|sbatch|gz)$")
_BASE64 = re.compile(r"^[A-Za-z0-9+/]*={0,2}$")
_NUMBER = re.compile(r"^-[0-9.]")


class Refused(ValueError):
    """What is wrong, told beside the field it was written in."""

    def __init__(self, field: str, value: str, message: str) -> None:
        self.field, self.value, self.message = (" ".join(text.split()) for text in (field, value, message))
        super().__init__(f"{self.field}: {self.message}")

    @property
    def data(self) -> dict[str, str]:
        return {"field": self.field, "value": self.value, "message": self.message}


@dataclass(frozen=True)
class PageRequest:
    verb: str
    first: tuple[str, ...]
    options: tuple[tuple[str, Value], ...]
    files: tuple[tuple[str, str], ...] = ()
    """configurations that exist in the browser only, by the name the command line has for them"""

    @property
    def words(self) -> tuple[str, ...]:
        """The command line, without `--json`."""
        found = [self.verb, *self.first]
        for name, value in self.options:
            found += _option(name, value)
        return tuple(found)

    @property
    def command(self) -> str:
        return shlex.join(["shardwise", *self.words])


class SentForm(msgspec.Struct, forbid_unknown_fields=True):
    """As it comes over the wire."""

    verb: str
    first: list[str] = []
    options: dict[str, Value] = {}
    files: dict[str, str] = {}


@cache
def allowed() -> dict[str, frozenset[str]]:
    """Options that may be asked, by verb: the table the page's own forms are made from."""
    data = msgspec.json.decode((STATIC / "questions.json").read_bytes())
    known = groups()
    return {
        verb: frozenset(name for group in options for name in known.get(group, [group]))
        for verb, options in data["verbs"].items()
    }


def groups() -> dict[str, list[str]]:
    """Options that many verbs have, from the table of parameters: none that names a file of this machine."""
    rows = {name: row for name, row in parameters().items() if name not in NOT_ON_THE_PAGE}
    of_policy = [(name, row) for name, row in rows.items() if row.acts_on in (POLICY, OVERLAP)]
    case = [flag_of(name) for name, row in rows.items() if row.acts_on in (CLUSTER, JOB, PROGRAM)]
    return {
        "@job": ["on", *(name for name in case if name not in OF_THE_RUN)],
        "@run": list(OF_THE_RUN),
        "@policy": [row.off.removeprefix("--") or flag_of(name) for name, row in of_policy],
    }


def question_of(raw: bytes) -> PageRequest:
    """A question as the browser sent it; what is not one is Refused."""
    try:
        sent = msgspec.json.decode(raw, type=SentForm)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("question", "", f"it cannot be read ({str(error)[:200]}); send verb, first, options") from None
    return checked(sent)


def checked(sent: SentForm) -> PageRequest:
    if sent.verb not in allowed():
        raise Refused("verb", sent.verb[:40], f"the page does not ask it; write one of {', '.join(allowed())}")
    if len(sent.first) > MOST_WORDS or len(sent.options) > MOST_OPTIONS:
        raise Refused("options", "", f"there are too many; write at most {MOST_OPTIONS}")
    files = tuple((_file_name(name), _text(name, text)) for name, text in sent.files.items())
    known = {name for name, _ in files}
    if sent.verb == "watch" and sent.first != ["@run"]:
        raise Refused("run", " ".join(sent.first)[:80], "the run is named where the server starts; write @run")
    if sent.verb in READS and not (sent.first and set(sent.first) <= known):
        raise Refused(READS[sent.verb], " ".join(sent.first)[:80], "the file did not come along; drop it on the page")
    for word in sent.first:
        _check_word("model", word, known)
    for name, value in sent.options.items():
        if name not in allowed()[sent.verb]:
            raise Refused(name[:40], str(value)[:80], f"{sent.verb} has no such option on the page; leave it out")
        for word in value if isinstance(value, tuple) else (str(value),):
            _check_word(name, str(word), known)
            if name == "lengths" and not _is_distribution(str(word)):
                raise Refused(name, str(word)[:80], "no file of the server is read here; write MEAN,CAP, as 3000,8192")
    return PageRequest(sent.verb, tuple(sent.first), tuple(sent.options.items()), files)


def _check_word(field: str, word: str, files: set[str]) -> None:
    if not word or len(word) > LONGEST_WORD or not word.isprintable():
        raise Refused(field, word[:80], f"write 1 to {LONGEST_WORD} characters of plain text")
    if word in files:
        return
    if word.startswith("-") and not _NUMBER.match(word):
        raise Refused(field, word[:80], "it begins like an option; write a value")
    parts = re.split(r"[/\\]", word)
    leads = word.startswith(("/", "\\", "~", ".")) or ".." in parts or "\\" in word or len(parts) > 2
    if leads or re.search(r"\.(json|ya?ml|toml|csv|txt)$", word, re.IGNORECASE):
        raise Refused(field, word[:80], "files of the server cannot be named here; drop a config.json on the page")


def _is_distribution(text: str) -> bool:
    """Whether lengths are numbers or a name, and no file."""
    head, comma, _ = text.partition(",")
    return text.strip() in NAMED or (bool(comma) and (head.strip() in NUMBERS or head.strip()[:1].isdigit()))


def _file_name(name: str) -> str:
    if not _NAME.match(name):
        raise Refused("model", name[:80], "the file's name is not plain; call it config.json or launch.sh")
    return name


def _text(name: str, text: str) -> str:
    if name.endswith(PACKED):
        if len(text) * 3 / 4 > LONGEST_PACKED:
            raise Refused("trace", name[:80], f"too long; at most {LONGEST_PACKED // 2**20} MiB, packed, are read")
        if len(text) % 4 or not _BASE64.match(text):
            raise Refused("trace", name[:80], "it is not whole; drop the file again")
        return text
    if len(text) > LONGEST_FILE:
        raise Refused("model", name[:80], f"the file is too long; at most {LONGEST_FILE // 2**10:,} KiB are read")
    return text


def _option(name: str, value: Value) -> Sequence[str]:
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    each = value if isinstance(value, tuple) else [value]
    return [word for one in each for word in (f"--{name}", _plain(one))]


def _plain(value: str | int | float) -> str:
    """As a browser writes it: 1.0 is 1."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


def refusal_of(complaint: str, question: PageRequest) -> Refused:
    """The verb's own line, beside the field it names: by its first word, an option in it, or the value it quotes."""
    said = complaint.strip().splitlines()
    message = re.sub(r"^error: ", "", said[-1] if said else f"{question.verb}: no answer")
    field = _field_of(message, question)
    return Refused(field, str(_value_of(field, question))[:200], message)


ALIASES: Mapping[str, str] = {"cluster": "on", "fabric": "on", "gpu": "on", "gpus": "on", "file": "model"}


def _field_of(message: str, question: PageRequest) -> str:
    options = dict(question.options)
    head = re.match(r"([A-Za-z][\w-]*)[ :]", message)
    word = head[1].replace("_", "-") if head else ""
    word = ALIASES.get(word, word)
    if word in options or (word == "model" and question.first):
        return word
    for name in re.findall(r"--([a-z][a-z-]*)", message):
        if name in options:
            return str(name)
    for name, value in options.items():
        if f"'{value}'" in message or f'"{value}"' in message:
            return name
    return "model" if any(f"'{one}'" in message for one in question.first) else ""


def _value_of(field: str, question: PageRequest) -> Any:
    if field == "model" and question.first:
        return question.first[0]
    return dict(question.options).get(field, "")
