"""A launch script as data: which commands it would start, with which words. Nothing is executed.

Assignments, arrays, functions, loops over stated words and conditions on stated values are followed as the shell would.
A variable that nobody sets is open, as is a command's output; where a condition needs one, both ways are read.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from shardwise.programs.formats._shell_assign import ASSIGNS, assign
from shardwise.programs.formats._shell_builtins import joined_path, set_arguments, set_at_start, set_by_builtin
from shardwise.programs.formats._shell_either import agreed
from shardwise.programs.formats._shell_filters import passed_on
from shardwise.programs.formats._shell_lines import (
    BUILTINS,
    DECLARES,
    PREFIXES,
    QUERIES,
    ShellScript,
    joined_lines,
    without_heredocs,
)
from shardwise.programs.formats._shell_output import OUTPUTS, output_of
from shardwise.programs.formats._shell_parts import (
    ByPattern,
    Chain,
    Condition,
    Conditional,
    Function,
    Loop,
    Node,
    Pipe,
    Simple,
    Sum,
    parsed,
)
from shardwise.programs.formats._shell_tests import counted, test_of
from shardwise.programs.formats._shell_words import NAME, OPEN, Environment, Expander, is_open, open_word, shown_word

MOST_STEPS = 20_000
DEEPEST_CALLS = 12
Files = Callable[[str], str | None]
"""the text of a file that a script names; None where it is not to be had"""
Outcome = bool | None
"""whether a command succeeds; None where only a run shows it"""


class _Left(Exception):
    """The script, a function or a loop is left."""

    def __init__(self, what: str) -> None:
        self.what = what


def read_shell(
    text: str, files: Files = lambda _name: None, name: str = "script.sh", given: Mapping[str, str] | None = None
) -> ShellScript:
    """`given`: variables of the environment it is started in; its arguments are named by their numbers."""
    found = ShellScript()
    text = text.replace("\r\n", "\n").replace(OPEN, "")
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            found.directives += line[7:].split("#")[0].split()
    shell = _Shell(found, files)
    shell.environment.variables |= set_at_start(found.directives, name, given or {})
    with suppress(_Left):
        shell.run_text(text)
    found.variables = shell.environment.variables
    found.assumed |= {name for name in shell.environment.unset if not name.isdigit()}
    return found


class _Shell:
    def __init__(self, script: ShellScript, files: Files) -> None:
        self.script, self.files = script, files
        self.environment = Environment(substitute=self._output)
        self.functions: dict[str, Node] = {}
        self.steps = self.depth = 0
        self.unsure = 0
        """conditions around that only a run decides, or that rest on variables nobody set: no exit in them counts"""
        self.rests_on_unset = False
        self.written: list[str] | None = None
        """what a substituted command prints; None outside of one"""

    def run_text(self, text: str) -> Outcome:
        self.depth += 1
        if self.depth > DEEPEST_CALLS:
            raise ValueError(f"script: files, functions and commands in words nested more than {DEEPEST_CALLS} deep")
        outcome = self.run(parsed(joined_lines(without_heredocs(text))))
        self.depth -= 1
        return outcome

    def run(self, node: Node) -> Outcome:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise ValueError(f"script: more than {MOST_STEPS:,} commands to follow; write a shorter one")
        match node:
            case Simple():
                return self._simple(node.words)
            case Condition():
                return self._tested(
                    lambda: test_of([token.text for token in node.tokens], self.environment, arithmetic=False)
                )
            case Sum():
                return self._summed(node.text)
            case Chain():
                return self._chain(node)
            case Pipe():
                outcome = self._piped(node.parts)
                return (None if outcome is None else not outcome) if node.negated else outcome
            case Conditional():
                return self._choice(node)
            case ByPattern():
                return self._case(node)
            case Loop():
                return self._loop(node)
            case Function():
                self.functions[node.name] = node.body
                return True
            case _:
                before = dict(self.environment.variables)
                outcome = True
                for part in node.parts:
                    outcome = self.run(part)
                if node.apart:
                    self.environment.variables = before
                return outcome

    def _piped(self, parts: Sequence[Node]) -> Outcome:
        """In a substitution, what one command prints is handed to the next."""
        start = len(self.written or ())
        outcome = self.run(parts[0])
        for part in parts[1:]:
            if self.written is None or not isinstance(part, Simple):
                outcome = self.run(part)
                continue
            words, text = self._words(part.words), "\n".join(self.written[start:])
            self.written[start:] = [passed_on(words, text)]
        return outcome

    def _tested(self, test: Callable[[], Outcome]) -> Outcome:
        """A condition; whether it rests on variables that nobody set is kept for what follows."""
        before, self.environment.unset = self.environment.unset, set()
        self.environment.testing = True
        outcome = test()
        self.environment.testing = False
        self.rests_on_unset = bool(self.environment.unset)
        self.environment.unset |= before
        return outcome

    def _summed(self, text: str) -> Outcome:
        if re.search(r"\+\+|--|(?<![<>=!])=(?!=)", text):
            for name in re.findall(rf"({NAME})\s*(?:\+\+|--|[-+*/]?=(?!=))", text):
                self.environment.variables[name] = [open_word(f"${name}")]
            return True
        words = re.split(r"\s*(==|!=|<=|>=|<|>|&&|\|\|)\s*", text)
        return self._tested(lambda: test_of(words, self.environment, arithmetic=True))

    @contextmanager
    def _guarded(self, *, guarded: bool) -> Iterator[None]:
        self.unsure += guarded
        try:
            yield
        finally:
            self.unsure -= guarded

    def _chain(self, node: Chain) -> Outcome:
        outcome = self._condition(node.first)
        for operator, part in node.rest:
            rests = self.rests_on_unset
            if outcome is None:
                self._either([part, None])
            elif outcome is (operator == "&&"):
                with self._guarded(guarded=rests):
                    outcome = self._condition(part)
                self.rests_on_unset |= rests
        return outcome

    def _condition(self, node: Node) -> Outcome:
        self.rests_on_unset = False
        return self.run(node)

    def _choice(self, node: Conditional) -> Outcome:
        possible: list[Node | None] = []
        rests = False
        for condition, body in node.arms:
            outcome = self._condition(condition)
            rests |= self.rests_on_unset
            if outcome is None:
                possible.append(body)
            elif outcome:
                possible.append(body)
                break
        else:
            possible.append(node.otherwise)
        if len(possible) > 1:
            return self._either(possible)
        if possible[0] is None:
            return True
        with self._guarded(guarded=rests):
            return self.run(possible[0])

    def _case(self, node: ByPattern) -> Outcome:
        word = ""

        def known() -> Outcome:
            nonlocal word
            word = " ".join(self._words((node.word,)))
            return None if is_open(word) else True

        decided = self._tested(known)
        rests = self.rests_on_unset
        arms = [(["".join(Expander(each, self.environment).word(whole=True)) for each in patterns], body)
                for patterns, body in node.arms]  # fmt: skip
        if decided is None or any(is_open(pattern) for patterns, _ in arms for pattern in patterns):
            return self._either(
                [*(body for _, body in arms), *([] if any("*" in each for each, _ in arms) else [None])]
            )
        body = next((body for patterns, body in arms if any(fnmatchcase(word, pattern) for pattern in patterns)), None)
        if body is None:
            return True
        with self._guarded(guarded=rests):
            return self.run(body)

    def _either(self, bodies: Sequence[Node | None]) -> Outcome:
        """All ways that a condition may go; what they set differently is open."""
        before = self.environment.variables
        ends: list[dict[str, list[str]]] = []
        outer, printed = self.written, list[list[str]]()
        for body in bodies:
            self.environment.variables = dict(before)
            self.written = None if outer is None else []
            if body is not None:
                with self._guarded(guarded=True), suppress(_Left):
                    self.run(body)
            ends.append(self.environment.variables)
            printed.append(self.written or [])
        self.written = outer
        if outer is not None and any(printed):
            outer += agreed("output", list(printed))
        names = dict.fromkeys(name for end in ends for name in end)
        self.environment.variables = {name: agreed(name, [end.get(name) for end in ends]) for name in names}
        return None

    def _loop(self, node: Loop) -> Outcome:
        if node.condition is not None:
            outcome = self._condition(node.condition)
            outcome = outcome if outcome is None else outcome is not node.until
            return True if outcome is False else self._either([node.body, None])
        if node.words is not None:
            words = self._words(node.words)
        elif (numbers := counted(node.counts, self.environment)) is not None:
            words = numbers
        else:
            words = [open_word(f"${node.name}")]
        for word in words:
            self.environment.variables[node.name] = [word]
            try:
                self.run(node.body)
            except _Left as left:
                if left.what == "break":
                    break
                if left.what != "continue":
                    raise
        return True

    def _words(self, raw: Sequence[str]) -> list[str]:
        return [word for text in raw for word in Expander(text, self.environment).words()]

    def _simple(self, raw: Sequence[str]) -> Outcome:
        place = next((at for at, word in enumerate(raw) if not ASSIGNS.match(word)), len(raw))
        rest = list(raw[place:])
        for word in raw[:place]:
            if not rest or not word.startswith("IFS="):  # what a command alone is to split words by
                assign(word, self.environment)
        while len(rest) > 1 and rest[0] in PREFIXES:
            rest = rest[1:]
            while len(rest) > 1 and (ASSIGNS.match(rest[0]) or (rest[0].startswith("-") and raw[place] == "env")):
                assign(rest.pop(0), self.environment)
        if not rest:
            return True
        if rest[0] in DECLARES:
            for word in rest[1:]:
                assign(word, self.environment)
            return True
        if rest[0] in ("[", "test"):
            return self._tested(lambda: test_of(rest[1:], self.environment, arithmetic=False))
        words = self._words(rest)
        return self._command(words) if words else True

    def _command(self, words: list[str]) -> Outcome:
        name, given = words[0], words[1:]
        if name in ("exit", "return", "break", "continue"):
            if not self.unsure:
                raise _Left(name)
            return None
        if name in BUILTINS:
            return self._builtin(name, given)
        if name in self.functions:
            return self._called(self.functions[name], given)
        if name in ("source", ".") and given:
            return self._sourced(given[0], given[1:])
        if name == "printf" and given[:1] == ["-v"] and len(given) > 2:
            self.environment.variables[given[1]] = output_of(name, given[2:], self.environment)
            return True
        if self.written is not None and name in OUTPUTS:
            self.written += output_of(name, given, self.environment)
            return True
        nested = next((at for at, word in enumerate(words) if PurePosixPath(word).name in ("bash", "sh")), None)
        if nested is not None and self._nested(words[nested + 1 :]):
            return True
        self.script.commands.append(words)
        if self.written is not None:
            self.written.append(open_word(f"$({' '.join(words)})"))
        return None if name in QUERIES else True

    def _builtin(self, name: str, given: list[str]) -> Outcome:
        if name == "eval":
            return self.run_text(" ".join(given))
        return set_by_builtin(name, given, self.environment.variables)

    def _called(self, body: Node, given: list[str]) -> Outcome:
        before = {name: value for name, value in self.environment.variables.items() if name in "@*#" or name.isdigit()}
        self.depth += 1
        if self.depth > DEEPEST_CALLS:
            raise ValueError(f"script: files, functions and commands in words nested more than {DEEPEST_CALLS} deep")
        set_arguments(self.environment.variables, given)
        try:
            return self.run(body)
        except _Left as left:
            if left.what != "return":
                raise
            return None
        finally:
            self.depth -= 1
            set_arguments(self.environment.variables, [])
            for name in "@*#":
                self.environment.variables.pop(name, None)
            self.environment.variables |= before

    def _sourced(self, name: str, given: list[str]) -> Outcome:
        text = None if is_open(name) else self.files(name)
        if text is None and not is_open(name):
            text = self.files(joined_path(self.environment.variables.get("PWD", ["."])[0], name))
        if text is None:
            if shown_word(name) not in self.script.sourced:
                self.script.sourced.append(shown_word(name))
            return True
        if given:
            set_arguments(self.environment.variables, given)
        try:
            return self.run_text(text.replace("\r\n", "\n").replace(OPEN, ""))
        except _Left as left:
            if left.what == "exit":
                raise
            return None

    def _nested(self, given: list[str]) -> bool:
        """bash -c TEXT, and bash FILE of the same folder, run as part of the script."""
        for at, word in enumerate(given):
            if re.fullmatch(r"-\w*c", word) and at + 1 < len(given):
                with suppress(_Left):
                    self.run_text(given[at + 1])
                return True
            if not word.startswith("-"):
                text = None if is_open(word) else self.files(word)
                if text is None:
                    return False
                before = dict(self.environment.variables)
                set_arguments(self.environment.variables, given[at + 1 :])
                with suppress(_Left):
                    self.run_text(text.replace("\r\n", "\n").replace(OPEN, ""))
                self.environment.variables = before
                return True
        return False

    def _output(self, command: str) -> str | None:
        """What a substituted command prints, where its words tell."""
        outer, self.written = self.written, []
        commands, before = len(self.script.commands), self.environment.variables
        self.environment.variables = dict(before)
        testing, self.environment.testing = self.environment.testing, False
        try:
            self.run_text(command)
            found = "\n".join(self.written).strip("\n")
        except (_Left, ValueError):
            found = OPEN
        finally:
            self.written, self.environment.testing = outer, testing
            self.environment.variables = before
        started = len(self.script.commands) > commands
        del self.script.commands[commands:]
        return None if started or is_open(found) else found
