"""The course: no lesson uses a term before the lesson that explains it; Korean has one word for each; every lesson ends
in a goal that is missed where it begins and can be reached."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from shardwise import catalog
from shardwise.show.cli._page_worker import answered
from shardwise.show.page.files import lessons_json
from shardwise.show.page.questions import STATIC
from shardwise.show.page.views import asked_by, state_of
from shardwise.show.page.workers import Asked

KOREAN = {
    "activations": ("활성값",),
    "attention": ("어텐션",),
    "bias": ("편향", "바이어스"),
    "bubble": ("버블",),
    "chunks": ("청크",),
    "collective": ("집합 통신",),
    "embedding": ("임베딩", "단어 표"),
    "experts": ("전문가",),
    "fabric": ("패브릭",),
    "feed-forward": ("피드포워드",),
    "gradient": ("그래디언트", "기울기"),
    "group": ("그룹", "묶음"),
    "latency": ("지연",),
    "loss": ("손실",),
    "micro-batch": ("마이크로배치",),
    "norms": ("정규화",),
    "optimizer": ("옵티마이저",),
    "parameter": ("매개변수", "파라미터"),
    "policy": ("정책",),
    "queue": ("대기열",),
    "rail": ("레일",),
    "rank": ("랭크",),
    "recompute": ("재계산",),
    "replicas": ("복제본",),
    "reserve": ("여유분",),
    "ring": ("링", "고리"),
    "spine": ("스파인",),
    "stage": ("스테이지",),
    "throughput": ("처리량",),
    "token": ("토큰",),
    "width": ("너비", "폭 "),
    "worker": ("작업자",),
}
"""The word of the course for each term, then words that are not used for it."""


def _cards() -> dict[str, Mapping[str, Any]]:
    return {name: catalog.entry("answers", name) for name in catalog.names("answers")}


def _pairs(value: Any) -> Iterator[tuple[str, str]]:
    """Every text that has both languages, in a lesson or a card."""
    if isinstance(value, dict):
        if isinstance(value.get("en"), str):
            yield value["en"], value["ko"]
        for each in value.values():
            yield from _pairs(each)
    elif isinstance(value, list):
        for each in value:
            yield from _pairs(each)


def mixed_terms() -> Iterator[str]:
    """Korean texts that lack the word for a term of their English, or have another word for it."""
    texts = {each["name"]: each for each in lessons()} | _cards()
    for name, text in texts.items():
        for english, korean in _pairs(text):
            for term, (word, *_) in KOREAN.items():
                if re.search(rf"(?<![\w-]){term}s?(?![\w-])", english, re.IGNORECASE) and word not in korean:
                    yield f"{name}: {term} is {word}, not so in {korean}"
    words = (STATIC / "pictures" / "korean.js").read_text(encoding="utf-8")
    koreans = [(name, korean) for name, text in texts.items() for _, korean in _pairs(text)]
    for name, korean in [*koreans, ("pictures", words)]:
        for word, *others in KOREAN.values():
            yield from (f"{name}: {other} in place of {word}" for other in others if other in korean)


def too_early() -> Iterator[str]:
    """Terms that a lesson or a card of it names before the lesson that introduces them, or that none does."""
    cards, every = _cards(), lessons()
    place = {term: at for at, lesson in enumerate(every) for term in lesson["introduces"]}
    for at, lesson in enumerate(every):
        texts = [lesson["title"], lesson["text"], *(cards[name] for name in lesson["cards"])]
        text = " ".join(english for each in texts for english, _ in _pairs(each))
        for term, where in place.items():
            if at < where and re.search(rf"(?<![\w-]){re.escape(term)}s?(?![\w-])", text):
                yield f"{lesson['name']}: {term} is explained in {every[where]['name']}"
        for term in lesson.get("uses", []):
            known = [name for name, where in place.items() if where < at]
            if not any(term == name or term in (f"{name}s", name.removesuffix("s")) for name in known):
                yield f"{lesson['name']}: {term} is used and never explained before"


def lessons() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(lessons_json())["lessons"]
    return found


def wrong_goals(chosen: list[dict[str, Any]]) -> Iterator[str]:
    """Lessons without a goal in the planner, whose goal is reached where it begins, or not where `reach` leads."""
    for lesson in chosen:
        if "goal" not in lesson:
            yield f"{lesson['name']}: no goal"
        elif _reached(lesson["goal"], "link"):
            yield f"{lesson['name']}: reached where it begins"
        elif not _reached(lesson["goal"], "reach"):
            yield f"{lesson['name']}: not reached by {lesson['goal']['reach']}"


def _reached(goal: Mapping[str, Any], link: str) -> bool:
    """As the page judges it."""
    said = answered(Asked([*asked_by(goal["ask"], state_of(goal[link])[1]).words, "--json"], {}))
    answer = json.loads(said.out)
    value = _at(answer, goal["key"])
    if isinstance(value, list):
        value = max(value)
    if value is None or answer.get("fits") is False:
        return False
    if "over" in goal:
        value /= _at(answer, goal["over"])
    return bool(value <= goal["most"] if "most" in goal else value >= goal["least"])


def _at(answer: Any, path: str) -> Any:
    for key in path.split("."):
        if answer is not None:
            answer = answer[int(key)] if isinstance(answer, list) else answer.get(key)
    return answer
