"""Lines of a shell script before its words: texts for other commands left out, continued lines joined."""

import re

_PIECE = re.compile(r"""'[^']*'|\\.|"(?:[^"\\]|\\.)*"|(?<![^\s;&|(])\#[^\n]*""", re.DOTALL)
"""quoted text, an escaped character, a comment"""
_HEREDOC = re.compile(r"(?<!<)<<(?!<)-?\s*(['\"]?)(\w+)\1[^\n]*\n")


def without_heredocs(text: str) -> str:
    kept, at = list[str](), 0
    while (start := _HEREDOC.search(text, at)) is not None:
        kept.append(text[at : start.start()])
        end = re.compile(rf"^[ \t]*{re.escape(start[2])}[ \t]*$", re.MULTILINE).search(text, start.end())
        at = end.end() if end else len(text)
    return "\n".join([*kept, text[at:]])


def joined_lines(text: str) -> str:
    """Lines that a backslash ends go on in the next one, but for comments, which end with their line."""
    return _PIECE.sub(lambda piece: "" if piece[0] == "\\\n" else _within(piece[0]), text)


def _within(piece: str) -> str:
    return piece.replace("\\\n", "") if piece.startswith('"') else piece
