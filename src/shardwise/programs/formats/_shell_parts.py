"""The structure of a shell script: text -> commands, conditions, loops, functions."""

import re
from dataclasses import dataclass

from shardwise.programs.formats._shell_words import MOST_WORDS, NAME, closing, raw_end

DEEPEST = 60
_REDIRECTS = re.compile(r"\d*(?:&>>?|>>|>&|<&|>\||<<<|<>|<|>)")
_PLACEHOLDER = re.compile(r"<[A-Za-z][^<>|&;$\n\"']{0,120}>(?=\s|$)")
"""<PATH TO DATA>, as templates have it: its last sign would redirect into the option behind it"""
_OPERATORS = ("&&", "||", "|&", ";;&", ";;", ";&", ";", "&", "|", "\n", "(", ")")


@dataclass(frozen=True)
class Token:
    text: str
    kind: str
    """word, operator or sum: what (( )) holds"""


@dataclass(frozen=True)
class Simple:
    words: tuple[str, ...]
    """raw: with quotes and variables"""


@dataclass(frozen=True)
class Condition:
    """[[ ... ]]"""

    tokens: tuple[Token, ...]


@dataclass(frozen=True)
class Sum:
    """(( ... ))"""

    text: str


@dataclass(frozen=True)
class Sequence:
    parts: "tuple[Node, ...]"
    apart: bool = False
    """in a shell of its own"""


@dataclass(frozen=True)
class Chain:
    """Commands joined by && and ||."""

    first: "Node"
    rest: "tuple[tuple[str, Node], ...]"


@dataclass(frozen=True)
class Pipe:
    parts: "tuple[Node, ...]"
    negated: bool


@dataclass(frozen=True)
class Conditional:
    """if, elif, else."""

    arms: "tuple[tuple[Node, Node], ...]"
    otherwise: "Node | None"


@dataclass(frozen=True)
class ByPattern:
    word: str
    arms: "tuple[tuple[tuple[str, ...], Node], ...]"


@dataclass(frozen=True)
class Loop:
    """`name` and `words`: of `for`; else `condition`, which `until` negates."""

    body: "Node"
    name: str = ""
    words: tuple[str, ...] | None = None
    counts: str = ""
    """what for (( )) holds"""
    condition: "Node | None" = None
    until: bool = False


@dataclass(frozen=True)
class Function:
    name: str
    body: "Node"


Node = Simple | Condition | Sum | Sequence | Chain | Pipe | Conditional | ByPattern | Loop | Function
NOTHING = Sequence(())


def parsed(text: str) -> Node:
    parser = _Parser(_tokens(text))
    parts: list[Node] = []
    while not parser.over:
        parts.append(parser.list(frozenset()))
        parser.at += not parser.over  # a word that closes nothing
    return Sequence(tuple(parts))


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    while at < len(text):
        if len(found) > MOST_WORDS:
            raise ValueError(f"script: more than {MOST_WORDS:,} words; write a shorter one")
        character = text[at]
        if character in " \t":
            at += 1
        elif character == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text.startswith("((", at):
            end = closing(text, at, "(", ")")
            found.append(Token(text[at + 2 : max(end - 2, at + 2)], "sum"))
            at = end
        elif place := _PLACEHOLDER.match(text, at):
            found.append(Token(f"'{place[0]}'", "word"))
            at = place.end()
        elif text[at : at + 2] not in ("<(", ">(") and (redirect := _REDIRECTS.match(text, at)):
            at = _behind_file(text, redirect.end())
        elif operator := next((mark for mark in _OPERATORS if text.startswith(mark, at)), ""):
            found.append(Token(operator, "operator"))
            at += len(operator)
        else:
            end = max(raw_end(text, at), at + 1)
            found.append(Token(text[at:end], "word"))
            at = end
    return found


def _behind_file(text: str, at: int) -> int:
    """The file that a redirection names is not an argument."""
    while at < len(text) and text[at] in " \t":
        at += 1
    return max(raw_end(text, at), at)


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.at, self.depth = tokens, 0, 0

    @property
    def over(self) -> bool:
        return self.at >= len(self.tokens)

    def list(self, stops: frozenset[str]) -> Node:
        """Commands up to one of these words or operators, which is left in place."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"script: conditions and loops nested more than {DEEPEST} deep; write fewer")
        parts: list[Node] = []
        while not self.over:
            token = self.tokens[self.at]
            if token.text in stops or token.text in _CLOSERS:
                break
            if token.kind == "operator" and token.text != "(":
                if token.text in (")", ";;"):
                    break
                self.at += 1
                continue
            parts.append(self._chain())
        self.depth -= 1
        return Sequence(tuple(parts))

    def _peek(self) -> str:
        return "" if self.over else self.tokens[self.at].text

    def _take(self, *wanted: str) -> bool:
        if self._peek() in wanted and not self.over:
            self.at += 1
            return True
        return False

    def _lines(self) -> None:
        while self._take("\n", ";"):
            pass

    def _chain(self) -> Node:
        first = self._pipe()
        rest: list[tuple[str, Node]] = []
        while self._peek() in ("&&", "||"):
            operator = self._peek()
            self.at += 1
            self._lines()
            if self.over:
                break
            rest.append((operator, self._pipe()))
        return Chain(first, tuple(rest)) if rest else first

    def _pipe(self) -> Node:
        negated = False
        while self._take("!"):
            negated = not negated
        parts = [self._command()]
        while self._take("|", "|&"):
            self._lines()
            if self.over:
                break
            parts.append(self._command())
        return Pipe(tuple(parts), negated) if negated or len(parts) > 1 else parts[0]

    def _command(self) -> Node:
        if self.over:
            return NOTHING
        token = self.tokens[self.at]
        if token.kind == "sum":
            self.at += 1
            return Sum(token.text)
        if token.text == "(":
            return Sequence((self._inside(")"),), apart=True)
        read = {"if": self._if, "while": self._while, "until": self._while, "for": self._for, "select": self._for,
                "case": self._case, "{": lambda: self._inside("}"), "function": self._function,
                "[[": self._condition}.get(token.text)  # fmt: skip
        if read is not None:
            return read()
        following = [each.text for each in self.tokens[self.at + 1 : self.at + 3]]
        if following == ["(", ")"] and re.fullmatch(r"[\w.:-]+", token.text):
            return self._function()
        return self._simple()

    def _inside(self, closes: str) -> Node:
        self.at += 1
        body = self.list(frozenset({closes}))
        self._take(closes)
        return body

    def _simple(self) -> Node:
        words: list[str] = []
        while not self.over and self.tokens[self.at].kind == "word":
            words.append(self.tokens[self.at].text)
            self.at += 1
        if not words:
            self.at += 1
        return Simple(tuple(words))

    def _condition(self) -> Node:
        self.at += 1
        start = self.at
        while not self.over and self._peek() not in ("]]", "\n", ";"):
            self.at += 1
        tokens = list[Token]()
        pattern = False
        for token in self.tokens[start : self.at]:
            if pattern and tokens[-1].text != "=~" and token.text not in ("&&", "||"):
                tokens[-1] = Token(tokens[-1].text + token.text, "word")  # signs of a pattern: ( | )
            else:
                tokens.append(token)
            pattern = (pattern or token.text == "=~") and token.text not in ("&&", "||")
        self._take("]]")
        return Condition(tuple(tokens))

    def _if(self) -> Node:
        arms: list[tuple[Node, Node]] = []
        while self._take("if", "elif"):
            condition = self.list(frozenset({"then"}))
            self._take("then")
            arms.append((condition, self.list(frozenset({"elif", "else", "fi"}))))
        otherwise = self.list(frozenset({"fi"})) if self._take("else") else None
        self._take("fi")
        return Conditional(tuple(arms), otherwise)

    def _body(self) -> Node:
        self._lines()
        self._take("do", "{")
        body = self.list(frozenset({"done", "}"}))
        self._take("done", "}")
        return body

    def _while(self) -> Node:
        until = self._peek() == "until"
        self.at += 1
        condition = self.list(frozenset({"do"}))
        return Loop(self._body(), condition=condition, until=until)

    def _for(self) -> Node:
        self.at += 1
        if not self.over and self.tokens[self.at].kind == "sum":
            counts = self.tokens[self.at].text
            counted = re.search(rf"({NAME})\s*=", counts)
            self.at += 1
            return Loop(self._body(), name=counted[1] if counted else "_", counts=counts)
        name = self._peek()
        self.at += 1
        self._lines()
        words: list[str] = []
        if self._take("in"):
            while not self.over and self.tokens[self.at].kind == "word":
                words.append(self._peek())
                self.at += 1
        return Loop(self._body(), name=name, words=tuple(words))

    def _case(self) -> Node:
        self.at += 1
        word = self._peek()
        self.at += 1
        self._lines()
        self._take("in")
        arms: list[tuple[tuple[str, ...], Node]] = []
        while not self.over:
            self._lines()
            if self.over or self._take("esac"):
                break
            self._take("(")
            patterns: list[str] = []
            while not self.over and not self._take(")"):
                if self.tokens[self.at].kind == "word":
                    patterns.append(self._peek())
                self.at += 1
            arms.append((tuple(patterns), self.list(frozenset({";;", ";&", ";;&", "esac"}))))
            self._take(";;", ";&", ";;&")
        return ByPattern(word, tuple(arms))

    def _function(self) -> Node:
        self._take("function")
        name = self._peek()
        self.at += 1
        if self._take("("):
            self._take(")")
        self._lines()
        return Function(name, self._command())


_CLOSERS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
