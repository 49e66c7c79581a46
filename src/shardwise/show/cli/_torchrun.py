"""What torchrun tells a rank, checked before anything relies on it."""

import os

CURE = "start it with torchrun, or unset it"
MOST_RANKS = 10**6


def rank_here() -> int:
    """Of this process among those torchrun started; 0 where nobody started it as a rank."""
    if not any(name in os.environ for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID")):
        return 0
    ranks = _whole("WORLD_SIZE", 1, MOST_RANKS)
    rank = _whole("RANK", 0, ranks - 1)
    if "LOCAL_RANK" in os.environ:
        _whole("LOCAL_RANK", 0, ranks - 1)
    if ranks > 1:
        _whole("MASTER_PORT", 1, 65535)
        if not os.environ.get("MASTER_ADDR"):
            raise ValueError(f"MASTER_ADDR: it is not set in a world of {ranks} ranks; {CURE}")
    return rank


def _whole(name: str, least: int, most: int) -> int:
    text = os.environ.get(name)
    if text is None:
        raise ValueError(f"{name}: it is not set, although this process is one of several ranks; {CURE}")
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and least <= int(text) <= most):
        raise ValueError(f"{name}: {text[:40]!r} is not a whole number from {least} to {most}; {CURE}")
    return int(text)
