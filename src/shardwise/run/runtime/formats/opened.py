"""Which format a file or folder is in, and its tensors."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint
from shardwise.run.runtime.formats.dcp import is_dcp, read_dcp
from shardwise.run.runtime.formats.deepspeed import is_deepspeed, read_deepspeed
from shardwise.run.runtime.formats.hugging_face import is_hugging_face, read_hugging_face
from shardwise.run.runtime.formats.own import is_own, read_own
from shardwise.run.runtime.formats.stored import StoredCheckpoint


class CheckpointFormat(Struct, frozen=True):
    name: str
    known: Callable[[Path], bool]
    read: Callable[[Path], StoredCheckpoint]


FORMATS = (
    CheckpointFormat("shardwise", is_own, read_own),
    CheckpointFormat("dcp", is_dcp, read_dcp),
    CheckpointFormat("deepspeed", is_deepspeed, read_deepspeed),
    CheckpointFormat("hugging-face", is_hugging_face, read_hugging_face),
)
MEGATRON_STEP = "latest_checkpointed_iteration.txt"
READ = "torch DCP (FSDP2, torchtitan, Megatron torch_dist and fsdp_dtensor), DeepSpeed, safetensors or shardwise"


def format_of(path: Path) -> CheckpointFormat | None:
    return next((one for one in FORMATS if one.known(path)), None)


def open_checkpoint(path: Path, field: str = "folder") -> StoredCheckpoint:
    """ValueError where nobody knows it; DamagedCheckpoint where it is one that cannot be believed."""
    inside = _newest_inside(path)
    known = format_of(inside)
    if known is None:
        raise ValueError(f"{field}: {str(path)!r} is not a checkpoint that is read; write a folder of {READ}")
    return known.read(inside)


def _newest_inside(path: Path) -> Path:
    """Megatron's folder of iterations names the last one."""
    try:
        text = (path / MEGATRON_STEP).read_text(encoding="utf-8", errors="replace")[:40].strip()
    except OSError:
        return path
    if text.isdigit() and (path / f"iter_{int(text):07}").is_dir():
        return path / f"iter_{int(text):07}"
    raise DamagedCheckpoint(f"{MEGATRON_STEP} names iteration {text!r}, which is not there")
