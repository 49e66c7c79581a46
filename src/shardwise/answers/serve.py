"""`serve`: the page's views; the page as files."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from shardwise.answers.answer import Answer, FactList, Part, Text


class ViewRow(Struct, frozen=True, kw_only=True):
    view: str
    asks: Sequence[str]
    """verbs"""
    link: str


class ViewsAnswer(Answer, frozen=True, kw_only=True):
    views: Sequence[ViewRow]

    def parts(self) -> Iterator[Part]:
        yield FactList("views", [(row.view, ", ".join(dict.fromkeys(row.asks))) for row in self.views])


class ExportedCase(Struct, frozen=True, kw_only=True):
    view: str
    link: str


class ExportedPageAnswer(Answer, frozen=True, kw_only=True):
    page: str
    cases: Sequence[ExportedCase]
    answers: int

    def parts(self) -> Iterator[Part]:
        yield Text(f"page: {self.page} ({len(self.cases)} cases; open it in a browser)")


ANSWERS = (ViewsAnswer, ExportedPageAnswer)
