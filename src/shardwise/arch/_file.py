"""Reads a config.json from disk. The file is untrusted: bounded size, plain JSON, nothing in it is run."""

import json
from pathlib import Path

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
    path = Path(text)
    try:
        file = path / "config.json" if path.is_dir() else path
        # is_file keeps devices and pipes out, which could never end
        if not file.is_file():
            raise ValueError(
                f"model {text}: there is no file {file}; write a catalog name or the path of a config.json"
            )
        with file.open("rb") as stream:
            raw = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"model {text}: cannot be read ({error.strerror}); write the path of a config.json") from error
    if len(raw) > MOST_BYTES:
        raise ValueError(f"model {text}: larger than 4 MiB: no model configuration; write the path of a config.json")
    return _parsed(raw, text), file.resolve().parent.name if file.name == "config.json" else file.stem


def _parsed(raw: bytes, text: str) -> dict[str, object]:
    try:
        # transformers prints Infinity (Nemotron-H's time_step_limit), which stricter readers refuse
        config = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"model {text}: not valid JSON ({error}); write the path of a config.json") from error
    if not isinstance(config, dict):
        raise ValueError(f"model {text}: holds {type(config).__name__}, not an object; write {{...}} with model_type")
    return config
