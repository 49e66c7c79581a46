"""A folder of files named like modules that shardwise or its helpers import; one that runs leaves a mark."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from asked import OTHERS, SMALL, TRAINED, files

BY_PYTHON_ITSELF = {
    "importlib", "warnings", "contextlib", "collections", "keyword", "operator", "reprlib", "functools", "types",
    "__main__",
}  # fmt: skip
"""imported by `python -m` before the module that is named gets to run"""
INSTALLED = (
    "numpy", "msgspec", "yaml", "cyclopts", "rich", "docstring_parser", "torch", "starlette", "uvicorn", "h11", "anyio",
    "mcp", "pydantic", "scipy", "numba", "llvmlite", "pyarrow", "huggingface_hub", "transformers", "tokenizers",
    "prometheus_client", "ray", "distributed", "triton", "IPython", "sitecustomize", "usercustomize",
)  # fmt: skip
MARK = "ran-"
RUNS_SCRIPTS = ("trace", "auto", "prove")
"""of the user, whose own folder is theirs to import from"""


def plant(folder: Path, names: set[str]) -> None:
    for name in names:
        (folder / f"{name}.py").write_text(
            f"import os, sys\nopen(os.path.join({str(folder)!r}, '{MARK}{name}'), 'w').write(' '.join(sys.argv))\n"
            f"raise SystemExit('{name} of the folder ran')\n"
        )
    (folder / ".numba_config.yaml").write_text("cache_dir: machine-code\nopt: 99\n")


def every_name() -> set[str]:
    return {*sys.stdlib_module_names, *INSTALLED} - BY_PYTHON_ITSELF


def ran(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(f"{MARK}*"))


def made(folder: Path) -> Path:
    """With the files that `COMMANDS` read."""
    for name, content in files().items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(content)
    scripts = folder / "scripts"
    scripts.mkdir()
    (scripts / "small.py").write_bytes(SMALL)
    plant(folder, every_name())
    return folder


def commands() -> dict[str, str]:
    """One of each verb, in the order in which they need each other."""
    found = {verb: lines[0] for verb, lines in TRAINED.items() if verb in RUNS_SCRIPTS}
    found |= {verb: TRAINED[verb][0] for verb in ("run", "verify", "checkpoints")}
    for command in OTHERS:
        found.setdefault(command.split()[0], command)
    return {verb: command.replace("small.py", "scripts/small.py") for verb, command in found.items()}


def python_m(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """`python -m shardwise` in that folder; shardwise itself is found by PYTHONPATH."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [sys.executable, "-m", "shardwise", *shlex.split(command)], cwd=folder, env=environment, capture_output=True,
        text=True, stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
