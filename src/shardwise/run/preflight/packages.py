"""Versions of what is installed in this Python, read from its files: nothing is imported for it."""

import platform
import re
from importlib.metadata import PackageNotFoundError, distributions, version
from importlib.util import find_spec
from pathlib import Path

_CUDA = re.compile(r"^(cuda|hip)\b[^=\n]*=\s*['\"]([\w.+-]{1,40})['\"]", re.MULTILINE)
_NCCL = re.compile(r"^nvidia-nccl-cu(\d+)$")


def versions_here() -> dict[str, str]:
    """torch, the CUDA it was built for, NCCL, this Python; a name is away where there is none."""
    found = {"python": platform.python_version()}
    try:
        found["torch"] = version("torch")
    except PackageNotFoundError:
        return found
    found |= _built_for()
    for each in distributions():
        if _NCCL.match((each.metadata["Name"] or "").lower()):
            found["nccl"] = each.version
    return found


def _built_for() -> dict[str, str]:
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8", errors="replace")[:10_000]
    except OSError:
        return {}
    return {f"torch_{name}": value for name, value in _CUDA.findall(text)}
