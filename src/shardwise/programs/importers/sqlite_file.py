"""Opens a stranger's sqlite file to read plain tables of it: nothing in its schema is run, and no query goes on for
longer than reading a file of its size takes."""

import re
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

STEPS_A_BYTE, FEWEST_STEPS, MOST_STEPS = 2, 10_000_000, 4_000_000_000
"""of sqlite's machine: a row takes ten to thirty. Pages may be linked so that a few of them are rows without end."""
STEPS_A_LOOK = 1_000_000
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 2**22, sqlite3.SQLITE_LIMIT_COLUMN: 500, sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000, sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 4,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 10_000, sqlite3.SQLITE_LIMIT_ATTACHED: 0, sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}  # fmt: skip
_PLAIN = re.compile(r"CREATE\s+TABLE\s", re.IGNORECASE)


@contextmanager
def opened_sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """Read only. sqlite3.Error, OverflowError or UnicodeDecodeError say that it is damaged or passes a bound."""
    budget = min(max(path.stat().st_size * STEPS_A_BYTE, FEWEST_STEPS), MOST_STEPS)
    looks = 0

    def is_over() -> bool:
        nonlocal looks
        looks += 1
        return looks * STEPS_A_LOOK > budget

    with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)) as file:
        for limit, most in LIMITS.items():
            file.setlimit(limit, most)
        file.set_progress_handler(is_over, STEPS_A_LOOK)
        for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0"):
            file.execute(f"PRAGMA {pragma}")
        try:
            yield file
        except sqlite3.OperationalError:
            if looks * STEPS_A_LOOK <= budget:
                raise
            raise sqlite3.DatabaseError(f"more than {budget:,} steps for a file of its size") from None


def plain_tables(file: sqlite3.Connection, wanted: Collection[str]) -> set[str]:
    """Which of these tables it has. A view, a virtual table or a generated column in their place would be computed
    while it is read, to any size; the kind that a schema states for itself may be wrong, so that its words count."""
    found = set()
    for name, kind, words in file.execute("SELECT name, type, sql FROM sqlite_master WHERE type <> 'index'"):
        if name not in wanted:
            continue
        if kind != "table" or not isinstance(words, str) or not _PLAIN.match(words):
            raise sqlite3.DatabaseError(f"{name} is not a plain table")
        if any(row[6] for row in file.execute(f"PRAGMA table_xinfo({name})")):
            raise sqlite3.DatabaseError(f"{name} has a generated column")
        found.add(name)
    return found


def columns_of(file: sqlite3.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in file.execute(f"PRAGMA table_info({table})")}
