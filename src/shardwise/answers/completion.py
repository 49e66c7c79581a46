"""`--completion SHELL`: a script for the shell."""

from collections.abc import Iterator

from shardwise.answers.answer import Answer, Part, Text


class CompletionAnswer(Answer, frozen=True, kw_only=True):
    shell: str
    script: str

    def parts(self) -> Iterator[Part]:
        yield Text(self.script)


ANSWERS = (CompletionAnswer,)
