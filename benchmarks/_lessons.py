"""The order of the course: no lesson uses a term before the lesson that explains it."""

import json
import re
from collections.abc import Iterator

from shardwise.show.page.files import lessons_json


def too_early() -> Iterator[str]:
    """Terms that a lesson names before the one that introduces them, or uses without any that does."""
    lessons = json.loads(lessons_json())["lessons"]
    place = {term: at for at, lesson in enumerate(lessons) for term in lesson["introduces"]}
    for at, lesson in enumerate(lessons):
        text = f"{lesson['title']['en']} {lesson['text']['en']}"
        for term, where in place.items():
            if at < where and re.search(rf"(?<![\w-]){re.escape(term)}(?![\w-])", text):
                yield f"{lesson['name']}: {term} is explained in {lessons[where]['name']}"
        for term in lesson.get("uses", []):
            known = [name for name, where in place.items() if where < at]
            if not any(term == name or term in (f"{name}s", name.removesuffix("s")) for name in known):
                yield f"{lesson['name']}: {term} is used and never explained before"
