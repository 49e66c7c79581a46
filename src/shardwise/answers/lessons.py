"""`catalog lessons`: the course of the page: its lessons in order, or one of them to read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Struct

from shardwise.answers.answer import Answer, FactList, Part, Sentence, shown, table
from shardwise.registry import closest


class LessonGoal(Struct, frozen=True, kw_only=True):
    """What a reader is to reach in the live planner."""

    text: str
    link: str


class LessonRow(Struct, frozen=True, kw_only=True):
    number: Annotated[int, shown("", "thousands")]
    name: Annotated[str, shown("name")]
    title: Annotated[str, shown("lesson")]
    picture: str
    introduces: Sequence[str]
    """terms that it explains"""
    uses: Sequence[str]
    """terms that it needs, of lessons before it"""
    cards: Sequence[str]
    text: str
    goal: LessonGoal | None


class LessonsAnswer(Answer, frozen=True, kw_only=True):
    lessons: Sequence[LessonRow]

    def parts(self) -> Iterator[Part]:
        if len(self.lessons) != 1:
            yield table("the course (`shardwise serve`, view Learn, has its pictures)", self.lessons, words=3)
            return
        (lesson,) = self.lessons
        yield Sentence(lesson.title)
        for paragraph in lesson.text.split("\n\n"):
            yield Sentence(" ".join(paragraph.split()))
        facts = [("explains", ", ".join(lesson.introduces) or None), ("problems", ", ".join(lesson.cards) or None)]
        yield FactList("", [*facts, ("goal", lesson.goal.text if lesson.goal else None)])


ANSWERS = (LessonsAnswer,)


def lessons_answer(lessons: Sequence[Mapping[str, Any]], name: str | None, language: str) -> LessonsAnswer:
    """`lessons`: files of the course, in its order."""
    rows = [_row(at, lesson, language) for at, lesson in enumerate(lessons, 1)]
    if name is None:
        return LessonsAnswer(lessons=rows)
    found = [row for row in rows if row.name == name]
    if not found:
        raise ValueError(f"lesson: {name[:40]!r} is unknown; {closest(name[:40], [row.name for row in rows])}")
    return LessonsAnswer(lessons=found)


def _row(number: int, lesson: Mapping[str, Any], language: str) -> LessonRow:
    goal = lesson.get("goal")
    return LessonRow(
        number=number, name=lesson["name"], title=lesson["title"][language], picture=lesson["picture"],
        introduces=lesson.get("introduces", []), uses=lesson.get("uses", []), cards=lesson["cards"],
        text=lesson["text"][language].strip(),
        goal=LessonGoal(text=goal["text"][language], link=goal["link"]) if goal else None,
    )  # fmt: skip
