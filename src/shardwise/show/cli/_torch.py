"""torch, for verbs that execute: one line says where it is missing, and its files stay out of the temporary folder."""

from importlib.util import find_spec

from shardwise.user_cache import keep_compiled_code_private


def needs_torch(verb: str) -> None:
    """Called before anything is imported that needs it."""
    if find_spec("torch") is None:
        raise ValueError(f"{verb} needs torch, which is not installed; write pip install 'shardwise[run]'")
    keep_compiled_code_private()
