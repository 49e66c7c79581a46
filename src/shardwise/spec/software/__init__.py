"""Facts of each training program: kernels, host, overlap, experts, network, memory, loss, abilities.

Each program is a data file (catalog/programs) with its releases, chosen by name or from the text of a `software`
column. Nothing is tuned to a row: a setting states what the program does; numbers that runs taught are in one table
(catalog/fitted.toml).
"""

from shardwise.spec.software.load import is_former, is_known, known_stack, releases_of, running, stack_names, stack_of
from shardwise.spec.software.origin import Origin
from shardwise.spec.software.stack import PARTS, Stack, part_of
from shardwise.spec.software.texts import UNNAMED, Match, match_of, named, stack_for
from shardwise.spec.software.words import with_words

__all__ = [
    "PARTS",
    "UNNAMED",
    "Match",
    "Origin",
    "Stack",
    "is_former",
    "is_known",
    "known_stack",
    "match_of",
    "named",
    "part_of",
    "releases_of",
    "running",
    "stack_for",
    "stack_names",
    "stack_of",
    "with_words",
]
