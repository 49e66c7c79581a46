"""`serve --export`: the page as files, with the answers of the cases it is to show. No server stands behind it."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from shardwise.answers.serve import ExportedCase, ExportedPageAnswer
from shardwise.show.cli._cards import cards
from shardwise.show.cli._folder import check_folder, write_into
from shardwise.show.cli._page_worker import answered
from shardwise.show.cli._progress import bar
from shardwise.show.page.answers import Trouble, answer_of
from shardwise.show.page.files import PARTS, lessons_json, page_script, terms_json
from shardwise.show.page.questions import STATIC, PageRequest, Refused, SentForm, checked
from shardwise.show.page.theme import theme_css
from shardwise.show.page.views import asked_by, policy_state, state_of, table
from shardwise.show.page.workers import Asked

USUAL_CASES = ("#/plan", "#/learn")
SCRIPT = '<script src="page.js" defer></script>'
FILES = (*PARTS, "theme.css", "data.js", "page.js")


def write_page(folder: Path, links: Sequence[str], *, overwrite: bool) -> ExportedPageAnswer:
    """What was written. Every case is answered before anything is."""
    cases = [state_of(link) for link in links or USUAL_CASES]
    check_folder(folder, FILES, "export", overwrite)
    found: dict[str, msgspec.Raw] = {}
    with bar("answers of the page") as told:
        for number, (view, state) in enumerate(cases):
            told(number, len(cases))
            for question in questions_of(view, state, found):
                key = key_of(question)
                if key not in found:
                    found[key] = msgspec.Raw(_answer(question))
    listed = [{"view": view, "link": _link(view, state)} for view, state in cases]
    write_into(folder, _files(found, listed), "export", overwrite)
    shown = [ExportedCase(view=case["view"], link=case["link"]) for case in listed]
    return ExportedPageAnswer(page=str(folder / "index.html"), cases=shown, answers=len(found))


def questions_of(view: str, state: dict[str, str], found: dict[str, msgspec.Raw]) -> Iterator[PageRequest]:
    """Everything a view may ask of a case when it is opened, and by its buttons."""
    for name in table()["views"][view]["asks"]:
        yield asked_by(name, state)
    if view == "fabric" and state.get("packets"):
        yield asked_by("fabric-packets", state)
    if view == "learn":
        for card in cards():
            yield asked_by("card", {"card": card.name})
        for lesson in msgspec.json.decode(lessons_json())["lessons"]:
            if "live" in lesson:
                yield checked(msgspec.convert(lesson["live"]["ask"], SentForm))
    if view == "plan":
        answer = msgspec.json.decode(found[key_of(asked_by("plan", state))])["answer"]
        if answer["recommended"]:
            chosen = policy_state(answer["recommended"]["policy"], answer["gpus"])
            for target in table()["targets"]:
                yield asked_by("export", state | chosen | {"to": target})


def key_of(question: PageRequest) -> str:
    """As the browser's `keyOf` writes it."""
    files = dict(question.files)
    return msgspec.json.encode([question.verb, list(question.first), dict(question.options), files]).decode()


def _answer(question: PageRequest) -> bytes:
    """What cannot be answered is told where it is asked, as a server would."""
    try:
        got = answered(Asked([*question.words, "--json"], dict(question.files)))
        return answer_of(question, got, question.command)
    except Refused as error:
        if question.verb == "export":  # a program that cannot do this policy
            return msgspec.json.encode({"errors": [error.data]})
        raise ValueError(str(error.message)) from None
    except Trouble as error:
        raise ValueError(str(error)) from None


def _link(view: str, state: dict[str, str]) -> str:
    return f"#/{view}" + (f"?{urlencode(state)}" if state else "")


def _files(found: dict[str, msgspec.Raw], cases: list[dict[str, str]]) -> Iterable[tuple[str, bytes]]:
    index = (STATIC / "index.html").read_text(encoding="utf-8")
    if SCRIPT not in index:
        raise ValueError("index.html: the line that loads the script has changed; change SCRIPT too")
    yield "index.html", index.replace(SCRIPT, f'<script src="data.js" defer></script>\n{SCRIPT}').encode()
    for name in PARTS:
        if name != "index.html":
            yield name, (STATIC / name).read_bytes()
    yield "theme.css", theme_css().encode()
    yield "page.js", page_script().encode()
    data = {
        "Cases": cases,
        "Lessons": msgspec.Raw(lessons_json().encode()),
        "Terms": msgspec.Raw(terms_json().encode()),
        "Answers": found,
    }
    yield "data.js", b"".join(f"window.shardwise{name} = ".encode() + msgspec.json.encode(each) + b";\n"
                              for name, each in data.items())  # fmt: skip
