"""A launch script as data: assignments, arrays, defaults, line continuations. Nothing is executed.

What a script would have to be run for (`$(...)`, conditions, loops) is left open: such words are empty, and the reader
says that they were there. Both branches of a condition are read, the later assignment holds.
"""

import re
from dataclasses import dataclass, field

MOST_WORDS = 100_000
MOST_EXPANDED = 1 << 22
DEEPEST = 20
KEYWORDS = {"if", "then", "else", "elif", "fi", "for", "do", "done", "while", "until", "case", "esac", "in", "{", "}",
            "exec", "time", "!", "[[", "]]", "function", "select", "env", "nohup"}  # fmt: skip
ENDS = (";", "&", "|", "\n", "(", ")")
SLURM = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), "-N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"), "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
}  # fmt: skip
_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(\+?=)", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_DEFAULTED = re.compile(r"([A-Za-z_]\w*|[0-9@*#])(\[[@*]\])?(?:(:?[-=+])(.*)|(.*))", re.DOTALL | re.ASCII)
_HEREDOC = re.compile(r"(?<!<)<<(?!<)-?\s*(['\"]?)(\w+)\1[^\n]*\n")
_REDIRECTS = re.compile(r"\d?[<>]|&>")
_SEVERAL = re.compile(r"\$@|\$\{\w+\[@\]")
_SUM = re.compile(r"[\d\s()+*/%-]{1,200}")


@dataclass
class ShellScript:
    variables: dict[str, list[str]] = field(default_factory=dict)
    commands: list[list[str]] = field(default_factory=list)
    sourced: list[str] = field(default_factory=list)
    directives: list[str] = field(default_factory=list)
    """words behind #SBATCH"""
    open: set[str] = field(default_factory=set)
    """what only running it would tell"""
    expanded: int = 0
    """characters that variables were replaced by"""


def read_shell(text: str, known: dict[str, list[str]] | None = None) -> ShellScript:
    found = ShellScript(variables=dict(known or {}))
    text = text.replace("\r\n", "\n")
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            found.directives += line[7:].split("#")[0].split()
    for name, value in _slurm(found.directives).items():
        found.variables.setdefault(name, [value])
    _Reader(_without_heredocs(text).replace("\\\n", " "), found).read()
    return found


def _slurm(directives: list[str]) -> dict[str, str]:
    """Variables that Slurm sets by what a script asks of it."""
    asked: dict[str, str] = {}
    for number, word in enumerate(directives):
        name, equals, value = word.partition("=")
        following = directives[number + 1] if number + 1 < len(directives) else ""
        asked[name] = value if equals else following
    found = {variable: asked[name] for name, variables in SLURM.items() if name in asked for variable in variables}
    nodes, tasks = (found.get(name, "") for name in ("SLURM_NNODES", "SLURM_NTASKS_PER_NODE"))
    if re.fullmatch(r"\d{1,7}", nodes) and re.fullmatch(r"\d{1,4}", tasks):
        found |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), str(int(nodes) * int(tasks)))
    return {name: value for name, value in found.items() if re.fullmatch(r"\d{1,7}", value)}


def _without_heredocs(text: str) -> str:
    kept, at = list[str](), 0
    while (start := _HEREDOC.search(text, at)) is not None:
        kept.append(text[at : start.start()])
        end = re.compile(rf"^[ \t]*{re.escape(start[2])}[ \t]*$", re.MULTILINE).search(text, start.end())
        at = end.end() if end else len(text)
    return "\n".join([*kept, text[at:]])


class _Reader:
    def __init__(self, text: str, script: ShellScript, depth: int = 0) -> None:
        self.text, self.at, self.script, self.depth = text, 0, script, depth
        self.words = 0

    def read(self) -> None:
        command: list[str] = []
        while self.at < len(self.text):
            character = self.text[self.at]
            if character in ENDS and not _REDIRECTS.match(self.text, self.at):
                self._end(command)
                command = []
                self.at += 1
            elif character in " \t":
                self.at += 1
            elif character == "#":
                self._skip_line()
            elif _REDIRECTS.match(self.text, self.at):
                self._redirect()
            elif all(w in KEYWORDS or w == "export" for w in command) and (a := self._assignment()) is not None:
                self._assign(*a)
            else:
                command += self._word()
        self._end(command)

    def _end(self, command: list[str]) -> None:
        while command and command[0] in (*KEYWORDS, "export", "declare", "local", "readonly"):
            command = command[1:]
        if len(command) > 1 and command[0] in ("source", "."):
            self.script.sourced.append(command[1])
        elif command:
            self.script.commands.append(command)

    def _skip_line(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _redirect(self) -> None:
        """The file a redirection names is no argument."""
        while self.at < len(self.text) and self.text[self.at] in "<>&0123456789 \t":
            self.at += 1
        if self.at < len(self.text) and self.text[self.at] not in ENDS:
            self._word()

    def _assignment(self) -> tuple[str, bool] | None:
        match = _ASSIGNS.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return match[1], match[2] == "+="

    def _assign(self, name: str, adds: bool) -> None:
        before = self.script.variables.get(name, []) if adds else []
        if self.text[self.at : self.at + 1] == "(":
            self.at += 1
            self.script.variables[name] = [*before, *self._array()]
            return
        value = " ".join(self._word(whole=True)) if self.at < len(self.text) else ""
        self.script.variables[name] = [("".join(before) if adds else "") + value]

    def _array(self) -> list[str]:
        found: list[str] = []
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at].isspace():
                self.at += 1
            elif self.text[self.at] == "#":
                self._skip_line()
            else:
                found += self._word()
        self.at += 1
        return found

    def _word(self, *, whole: bool = False) -> list[str]:
        """One word, which unquoted variables may make several; `whole`: kept as one, as assignments do."""
        self.words += 1
        if self.words > MOST_WORDS:
            raise ValueError(f"script: more than {MOST_WORDS:,} words; write a shorter one")
        pieces, current, quoted = list[str](), "", False
        start = self.at
        while self.at < len(self.text):
            character = self.text[self.at]
            if character.isspace() or (character in ENDS and character != "("):
                break
            if character == "'":
                end = self._close("'")
                current, quoted = current + self.text[self.at + 1 : end], True
                self.at = end + 1
            elif character == '"':
                parts = self._quoted()
                current, quoted = current + "".join(parts[:1]), quoted or bool(parts)
                for part in parts[1:]:
                    pieces.append(current)
                    current = part
            elif character == "\\":
                current += self.text[self.at + 1 : self.at + 2]
                self.at += 2
            elif character in "$`":
                values = self._expanded()
                text = " ".join(values)
                split = [text] if whole else text.split()
                for number, part in enumerate(split):
                    if number:
                        pieces.append(current)
                        current = ""
                    current += part
            else:
                current += character
                self.at += 1
        if self.at == start:
            self.at += 1  # a character that begins nothing
        return [*pieces, current] if current or quoted else pieces

    def _close(self, mark: str) -> int:
        end = self.text.find(mark, self.at + 1)
        if end < 0:
            raise ValueError(f"script: a {mark} is never closed; write the whole script")
        return end

    def _quoted(self) -> list[str]:
        """What stands in double quotes; "${ARRAY[@]}" is several words."""
        words = [""]
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != '"':
            character = self.text[self.at]
            if character == "\\":
                words[-1] += self.text[self.at + 1 : self.at + 2]
                self.at += 2
            elif character in "$`":
                several = _SEVERAL.match(self.text, self.at) is not None
                values = self._expanded()
                if several and not values and words == [""] and self.text[self.at : self.at + 1] == '"':
                    words = []  # an array without members is no word at all
                elif several and values:
                    words[-1] += values[0]
                    words += values[1:]
                else:
                    words[-1] += " ".join(values)
            else:
                words[-1] += character
                self.at += 1
        if self.at >= len(self.text):
            raise ValueError('script: a " is never closed; write the whole script')
        self.at += 1
        return words

    def _expanded(self) -> list[str]:
        """A variable's words, a small sum, or nothing for what would have to be run."""
        if self.text[self.at] == "`":
            self.at = self._close("`") + 1
            self.script.open.add("`...`")
            return []
        if self.text.startswith("$((", self.at):
            inside = self._balanced("(", ")", 1)[1:-1]
            return self._sum(inside)
        if self.text.startswith("$(", self.at):
            self._balanced("(", ")", 1)
            self.script.open.add("$(...)")
            return []
        if self.text.startswith("${", self.at):
            return self._braced(self._balanced("{", "}", 1))
        name = _NAME.match(self.text, self.at + 1)
        self.at = name.end() if name else self.at + 1
        if name is None:
            return ["$"]
        return self._variable(name[0])

    def _variable(self, name: str) -> list[str]:
        if name not in self.script.variables and name not in "0123456789@*#?$!-":
            self.script.open.add(f"${name}")
        values = self.script.variables.get(name, [])
        self.script.expanded += sum(map(len, values)) + len(values)
        if self.script.expanded > MOST_EXPANDED:
            raise ValueError(f"script: its variables hold more than {MOST_EXPANDED:,} characters; write a shorter one")
        return values

    def _braced(self, inside: str) -> list[str]:
        match = _DEFAULTED.fullmatch(inside.lstrip("#!") if len(inside) > 1 else inside)
        if match is None or inside.startswith(("#", "!")):
            self.script.open.add(f"${{{inside[:40]}}}")
            return []
        name, _, sign, default, _ = match.groups()
        value = self.script.variables.get(name)
        if sign and sign.endswith("+"):
            return self._inner(default) if value else []
        if sign and not (value and any(value)):
            return self._inner(default)
        return self._variable(name)

    def _inner(self, text: str) -> list[str]:
        if self.depth >= DEEPEST:
            raise ValueError(f"script: variables with defaults nested more than {DEEPEST} deep; write fewer")
        inner = _Reader(text, self.script, self.depth + 1)
        inner.words = self.words
        found: list[str] = []
        while inner.at < len(text):
            if text[inner.at].isspace() or text[inner.at] in ENDS:
                inner.at += 1
            else:
                found += inner._word()
        self.words = inner.words + 1
        return found

    def _balanced(self, opens: str, closes: str, skip: int) -> str:
        """The text between the next bracket and its partner; stands behind it afterwards."""
        start, depth = self.at + skip, 0
        for position in range(start, len(self.text)):
            depth += (self.text[position] == opens) - (self.text[position] == closes)
            if depth == 0:
                self.at = position + 1
                return self.text[start + 1 : position]
        raise ValueError(f"script: a {opens} is never closed; write the whole script")

    def _sum(self, text: str) -> list[str]:
        """Whole numbers joined by + - * / %; anything else stays open."""

        def value(match: re.Match[str]) -> str:
            words = self.script.variables.get(match[1] or match[2] or match[3], [""])
            return words[0] if words and re.fullmatch(r"\d{1,12}", words[0]) else "?"

        filled = re.sub(r"\$\{(\w+)\}|\$(\w+)|\b([A-Za-z_]\w*)", value, text)
        result = _whole_result(filled) if _SUM.fullmatch(filled) else None
        if result is None:
            self.script.open.add("$((...))")
            return []
        return [str(result)]


def _whole_result(text: str) -> int | None:
    """The value of a small sum, by precedence; None where it is none."""
    tokens = re.findall(r"\d+|[()+*/%-]", text)
    place = 0

    def product() -> int:
        nonlocal place
        left = single()
        while place < len(tokens) and tokens[place] in "*/%":
            sign, place = tokens[place], place + 1
            right = single()
            left = left * right if sign == "*" else left // right if sign == "/" else left % right
        return left

    def total() -> int:
        nonlocal place
        left = product()
        while place < len(tokens) and tokens[place] in "+-":
            sign, place = tokens[place], place + 1
            left = left + product() if sign == "+" else left - product()
        return left

    def single() -> int:
        nonlocal place
        token, place = tokens[place], place + 1
        if token == "(":
            inside = total()
            place += 1
            return inside
        return -single() if token == "-" else int(token)

    try:
        found = total()
    except (IndexError, ValueError, ZeroDivisionError, RecursionError):
        return None
    return found if place == len(tokens) and abs(found) < 10**15 else None
