"""What every engine states about itself, and how the ones that are not part of shardwise are found."""

import importlib
import importlib.util
from collections.abc import Callable, Generator, Sequence
from types import ModuleType

from msgspec import Struct

Work = Callable[[bytes], bytes]
"""a function of a module, so that a worker can import it"""


class Lost(Struct, frozen=True):
    """In place of the answer of a shard whose worker died; the others have theirs."""

    why: str


Answers = Generator[tuple[int, bytes | Lost], None, None]


class Setup(Struct, frozen=True, kw_only=True):
    jobs: int | None = None
    """processes of this machine; None: one for each core, where they pay"""
    address: str | None = None
    """of a cluster engine; None: as that engine finds its own"""

    def __post_init__(self) -> None:
        if self.jobs is not None and not 1 <= self.jobs <= 1024:
            raise ValueError(f"jobs: {self.jobs} is out of range; write a whole number from 1 to 1024")


class Engine(Struct, frozen=True, kw_only=True):
    name: str
    summary: str
    start: Callable[[Work, Sequence[bytes], Setup], Answers]
    """answers with the place of their shard, as they come; closed early, it cancels what has not begun"""
    module: str = ""
    """what has to be importable; empty for what is always there"""
    install: str = ""
    """what to install for it"""


def wanted(module: str, engine: str, install: str) -> ModuleType:
    """The engine's own package, imported now; where it is missing the error says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        reason = f"{module} cannot be imported ({error})"
        raise ValueError(f"engine: {engine} is not here, {reason}; write: pip install '{install}'") from None


def one_line(problem: BaseException) -> str:
    """The last line of a message: engines put the worker's traceback before it."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return f"{type(problem).__name__}: {lines[-1][:300] if lines else ''}"


def worker_failed(engine: str, problem: BaseException) -> ValueError:
    return ValueError(
        f"engine: a worker of {engine} failed ({one_line(problem)}); have the same shardwise installed on every worker"
    )


def unreachable(engine: str, address: str | None, problem: BaseException) -> ValueError:
    where = "where it looks by default" if address is None else f"at {address!r}"
    cure = "write another --address, or give what the cluster asks for (its token, its version)"
    return ValueError(f"address: no connection to a {engine} cluster {where} ({one_line(problem)}); {cure}")
