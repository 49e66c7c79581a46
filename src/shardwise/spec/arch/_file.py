"""Reads a config.json from disk. The file is untrusted: bounded size, plain JSON, nothing in it is run."""

import json
from pathlib import Path

from shardwise.fields import read_file

MOST_BYTES = 4 * 2**20


def looks_like_path(text: str) -> bool:
    if text.endswith(".json") or "/" in text or "\\" in text or text in (".", ".."):
        return True
    try:
        return Path(text).exists()
    except (OSError, ValueError):
        return False


def read_config(text: str) -> tuple[dict[str, object], str]:
    """(fields, a name for the model) of a config.json or of the folder that holds one."""
    file = _in_folder(Path(text))
    raw = read_file(file, f"model {text}", MOST_BYTES, "a catalog name or the path of a config.json")
    return parsed_config(raw, text), file.resolve().parent.name if file.name == "config.json" else file.stem


def folder_with(text: str) -> Path:
    """Where the config.json lies."""
    return _in_folder(Path(text)).parent


def _in_folder(path: Path) -> Path:
    try:
        return path / "config.json" if path.is_dir() else path
    except OSError:
        return path


def parsed_config(raw: bytes, text: str) -> dict[str, object]:
    try:
        # transformers prints Infinity (Nemotron-H's time_step_limit), which stricter readers refuse
        config = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"model {text}: not valid JSON ({error}); write the path of a config.json") from error
    if not isinstance(config, dict):
        raise ValueError(f"model {text}: holds {type(config).__name__}, not an object; write {{...}} with model_type")
    return config
