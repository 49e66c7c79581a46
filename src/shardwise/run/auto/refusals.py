"""What a proof refused, kept so that the next plan of the same program avoids it."""

import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from torch import nn

from shardwise.run.auto.plan import AXES, Degrees
from shardwise.user_cache import user_cache
from shardwise.whole_file import moved_to

FILE, MOST_KEPT, MOST_BYTES = "proofs.json", 64, 2**20
"""programs that are kept: of more, the first are forgotten"""


class RefusedSplit(Struct, frozen=True):
    """Splits with all of these parts are not planned."""

    parts: tuple[str, ...]
    why: str


def parts_of(degrees: Degrees) -> tuple[str, ...]:
    """What a split does to a program, without how often."""
    found = {name: getattr(degrees, name) > 1 for name in (*AXES, "ep", "vpp")}
    found |= {"sp": degrees.sp, "recompute": degrees.recompute, "offload": degrees.offload != "none",
              "copies": degrees.replicas > 1, degrees.schedule: bool(degrees.schedule)}  # fmt: skip
    return tuple(name for name, there in found.items() if there)


def program_key(text: str, model: nn.Module) -> str:
    """Of a program as it is written, its model as it is built, and the code that splits it."""
    form = "\n".join(f"{name} {tuple(p.shape)}" for name, p in model.named_parameters())
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(f"{text}\n{form}\n".encode() + sources).hexdigest()


def kept_refusals(key: str) -> list[RefusedSplit]:
    return list(_kept().get(key, ()))


def keep_refusal(key: str, refusal: RefusedSplit) -> None:
    """A cache that cannot be written costs another proof, no more."""
    kept = _kept()
    kept[key] = [*kept.pop(key, []), refusal]
    path = _path()
    with suppress(OSError, RuntimeError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with moved_to(path) as file:
            file.write(msgspec.json.encode(dict(list(kept.items())[-MOST_KEPT:])))


def _kept() -> dict[str, list[RefusedSplit]]:
    try:
        path = _path()
        raw = path.read_bytes() if path.stat().st_size <= MOST_BYTES else b"{}"
        return msgspec.json.decode(raw, type=dict[str, list[RefusedSplit]])
    except (OSError, RuntimeError, msgspec.MsgspecError):
        return {}


def _path() -> Path:
    return user_cache("auto") / FILE
