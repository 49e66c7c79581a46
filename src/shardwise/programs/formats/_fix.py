"""A user's launch files with another policy in them: only what that changes is changed, and the result is read back."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path
from typing import Any

from shardwise.programs.formats._contract import Format, Known, Launch, settled, word_of
from shardwise.programs.formats._edit_nested import added as added_nested
from shardwise.programs.formats._edit_nested import replaced as replaced_nested
from shardwise.programs.formats._edit_shell import NotHereError, added, replaced
from shardwise.programs.formats._edit_toml import added as added_toml
from shardwise.programs.formats._edit_toml import replaced as replaced_toml
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._source import Document, open_document, values_of
from shardwise.screen import cut, without_secrets
from shardwise.spec.policy import Policy

Texts = dict[Path, str]
REPLACED = {"yaml": replaced_nested, "json": replaced_nested, "toml": replaced_toml}
ADDED = {"yaml": added_nested, "json": added_nested, "toml": added_toml}


@dataclass(frozen=True)
class Fixed:
    texts: Texts
    """of the files that change"""
    diff: str
    environment: dict[str, str | None]
    """variables that the new policy asks for otherwise; None: unset"""


def fixed(target: Format, documents: Sequence[Document], launch: Launch, policy: Policy, known: Known) -> Fixed:
    """A ValueError of one line where the files cannot be made to say it."""
    jobs = [each.name for each in documents if each.kind == "shell" and each.path.suffix in (".yaml", ".yml")]
    if jobs:
        raise ValueError(f"fix: {jobs[0]} holds its script within a job's YAML; change it by hand")
    now, then = target.written(launch), target.written(replace(launch, policy=policy, layers=()))
    (before, _), (after, kinds) = _stated(now.files), _stated(then.files)
    changes = {name: after.get(name) for name in (*after, *before) if before.get(name) != after.get(name)}
    changes |= {other: None for name, others in target.excludes.items() if changes.get(name) for other in others}
    first: Texts = {document.path: document.text for document in documents}
    for document in documents:
        first |= dict(document.sourced)
    files = _Files(documents, [name for name in after if name not in changes])
    texts = first
    for name, value in sorted(changes.items(), key=lambda change: change[1] is None):
        texts = files.changed(texts, name, value, kinds.get(name, ""))
    reread = _Reread(target, launch, policy, known)
    texts = _in_own_words(texts, files, reread, after, kinds)
    if wrong := reread.wrong(files.values(texts)):
        name, found = wrong[0]
        raise ValueError(
            f"fix: {name} would be {word_of(found)} and not {word_of(getattr(policy, name))}, which these files state "
            "in other words; change it by hand"
        )
    changed = {path: text for path, text in texts.items() if text != first[path]}
    variables = sorted({*now.environment, *then.environment})
    environment = {name: then.environment.get(name) for name in variables
                   if now.environment.get(name) != then.environment.get(name)}  # fmt: skip
    return Fixed(changed, "".join(_diff(path, first[path], text) for path, text in changed.items()), environment)


@dataclass(frozen=True)
class _Reread:
    target: Format
    launch: Launch
    policy: Policy
    known: Known

    def wrong(self, values: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Fields that settings do not say as wanted, and what they say."""
        found = settled(self._policy(FileSettings(values, "the changed file")), self.launch.case)
        names = self.policy.__struct_fields__
        return [(name, getattr(found, name)) for name in names if getattr(found, name) != getattr(self.policy, name)]

    def asked_for(self, values: Mapping[str, Any]) -> set[str]:
        settings = FileSettings(values, "the changed file")
        self._policy(settings)
        return set(settings.read())

    def _policy(self, settings: FileSettings) -> Policy:
        return self.target.read(settings, self.known).policy


def _in_own_words(
    texts: Texts, files: "_Files", reread: _Reread, after: Mapping[str, Any], kinds: Mapping[str, str]
) -> Texts:
    """What a file leaves to defaults, says otherwise or states under another name, stated or taken out as long as that
    brings it nearer to the policy that is wanted."""
    values = files.values(texts)
    left = len(reread.wrong(values))
    stated = [(name, value) for name, value in after.items() if name not in values or not _same(values[name], value)]
    stated += [(name, None) for name in values if name not in after and name in reread.asked_for(values)]
    for name, value in stated if left else []:
        try:
            tried = files.changed(texts, name, value, kinds.get(name, ""))
            wrong = len(reread.wrong(files.values(tried)))
        except ValueError:
            continue
        if wrong < left:
            texts, left = tried, wrong
        if not left:
            break
    return texts


def _stated(files: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings of files that a target wrote, and the kind of file that each is in."""
    values, kinds = dict[str, Any](), dict[str, str]()
    for name, text in files.items():
        document = open_document(Path(name), {Path(name): text})
        values |= values_of(document)
        kinds |= dict.fromkeys(values_of(document), document.kind)
    return values, kinds


@dataclass(frozen=True)
class _Files:
    documents: Sequence[Document]
    beside: list[str]
    """settings that a new one may stand behind"""

    def values(self, texts: Texts) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for document in self.documents:
            found |= values_of(open_document(document.path, texts, document.given))
        return found

    def changed(self, texts: Texts, name: str, value: Any, kind: str) -> Texts:
        """With one setting changed, by the first way that changes it and nothing else. `kind`: of the file that the
        target has it in."""
        before = self.values(texts)
        if _same(before.get(name), value) and (name in before or value is None or kind == "shell"):
            return texts  # only a command line cannot say that a switch is off
        fitting = [document for document in self.documents if document.kind == kind] or self.documents
        why = f"fix: {name} cannot be changed here without changing more; change it by hand"
        try:
            for way in (
                self._replacing(texts, name, value) if name in before else self._adding(texts, fitting, name, value)
            ):
                found = self.values(way)
                others = [key for key in (*found, *before) if not _same(found.get(key), before.get(key))]
                if _same(found.get(name), value) and set(others) <= {name}:
                    return way
        except NotHereError as error:
            why = f"fix: {error}"
        raise ValueError(why)

    def _replacing(self, texts: Texts, name: str, value: Any) -> Iterator[Texts]:
        for document in self.documents:
            if document.kind == "shell":
                files = {path: texts[path] for path in (document.path, *document.sourced)}
                yield from ({**texts, **way} for way in replaced(files, name, value))
                continue
            text = REPLACED[document.kind](texts[document.path], document.kind, name, value)
            if text is not None:
                yield {**texts, document.path: text}

    def _adding(self, texts: Texts, fitting: Sequence[Document], name: str, value: Any) -> Iterator[Texts]:
        for document in fitting:
            if document.kind == "shell":
                files = {path: texts[path] for path in (document.path, *document.sourced)}
                yield from ({**texts, **way} for way in added(files, name, value, self.beside))
            else:
                text = ADDED[document.kind](texts[document.path], document.kind, name, value)
                yield {**texts, document.path: text}


def _same(found: Any, wanted: Any) -> bool:
    """A switch that is off, a value of nothing and an absent one are the same."""
    return _plain(found) == _plain(wanted)


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    text = str(value).strip("'\"").lower()
    return "" if text in ("none", "null", "false", "~") else text


def _diff(path: Path, before: str, after: str) -> str:
    shown = (re.sub(r"\S{200,}", lambda word: cut(word[0]), without_secrets(text)) for text in (before, after))
    first, then = (text.splitlines(keepends=True) for text in shown)
    lines = unified_diff(first, then, str(path), str(path), n=2)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
