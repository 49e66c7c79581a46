"""`mcp`: the tools that agents have."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from shardwise.answers.answer import Answer, FactList, Part


class ToolRow(Struct, frozen=True, kw_only=True):
    name: str
    asks: str
    """model or files"""
    summary: str


class ToolsAnswer(Answer, frozen=True, kw_only=True):
    tools: Sequence[ToolRow]
    seconds: float
    """longest time of one answer"""

    def parts(self) -> Iterator[Part]:
        yield FactList("tools", [(row.name, row.summary) for row in self.tools])


ANSWERS = (ToolsAnswer,)
