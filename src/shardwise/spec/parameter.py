"""One row of the table of parameters: what a parameter is, which values it takes, and the refusal of all others."""

from collections.abc import Callable
from dataclasses import dataclass

from shardwise.registry import closest

CLUSTER, JOB, PROGRAM, POLICY, OVERLAP, SPACE = "cluster", "job", "program", "policy", "overlap", "space"
"""what a parameter acts on"""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One row of the table. `choices` may hold only the usual words of a parameter that takes others too (`open`)."""

    acts_on: str
    help: str
    """`{choices}` stands for the words"""
    default: str = ""
    """the value, or where it comes from, that is taken if nothing is stated"""
    unit: str = ""
    least: float | None = None
    most: float | None = None
    above: bool = False
    """`least` itself is out of range"""
    choices: Callable[[], tuple[str, ...]] | tuple[str, ...] = ()
    open: bool = False
    cure: str = ""
    """the end of a refusal, where the range alone does not say enough"""
    flag: str = ""
    """the option's name, where it is not the field's"""
    also: tuple[str, ...] = ()
    """other names of the option"""
    off: str = ""
    """the option that switches it off"""
    usual: bool = False
    """`--help` shows it; `--help-all` shows all"""
    repeats: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        return self.choices() if callable(self.choices) else self.choices

    @property
    def text(self) -> str:
        """The help as it is shown."""
        return self.help.replace("{choices}", ", ".join(word for word in self.words if word))

    def check(self, name: str, value: object) -> None:
        """A value that is out of range, or an unknown word, is a ValueError that names the cure."""
        if isinstance(value, str):
            if self.choices and not self.open and value not in self.words:
                known = [word for word in self.words if word]
                raise ValueError(f"{name}: {value!r} is unknown; {self.cure or closest(value, known)}")
        elif isinstance(value, int | float) and not isinstance(value, bool) and not self._inside(value):
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            raise ValueError(f"{name}: {shown} is out of range; write {self.cure or self._range(value)}")

    def _inside(self, value: float) -> bool:
        low = self.least is None or (value > self.least if self.above else value >= self.least)
        return low and (self.most is None or value <= self.most)

    def _range(self, value: float) -> str:
        kind = "a number" if isinstance(value, float) else "a whole number"
        low = "" if self.least is None else f"{self.least:,.12g}"
        if self.most is None:
            return f"{kind} above {low}" if self.above else f"{kind} of {low} or more"
        if self.above:
            return f"{kind} above {low} and at most {self.most:,.12g}"
        return f"{kind} from {low} to {self.most:,.12g}"
