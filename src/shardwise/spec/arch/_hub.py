"""Models by their Hugging Face id, such as Qwen/Qwen2.5-72B: the catalog's entry, a copy on this machine, the hub.

The hub is asked through `huggingface_hub`, where that is installed, and for two small files: config.json and the list
of weights. Nothing that a repository holds is run.
"""

import importlib
import os
import re
from functools import cache
from pathlib import Path

from shardwise import catalog
from shardwise.registry import closest
from shardwise.spec.arch._weights import INDEX

CONFIG = "config.json"
_ID = re.compile(r"^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}$")
_SOURCE = re.compile(r"Hugging Face ([\w.-]+/[\w.-]+), config\.json")
TUNED = ("-instruct", "-chat", "-it", "-base", "-hf")
"""endings of names whose model has the same shape"""


def is_hub_id(text: str) -> bool:
    return bool(_ID.match(text)) and not text.endswith((".json", "/..")) and not Path(text).exists()


@cache
def _in_catalog() -> dict[str, str]:
    """Catalog name by the id its file says it comes from."""
    found = {}
    for name in catalog.names("models"):
        match = _SOURCE.search(str(catalog.entry("models", name).get("_shardwise_source", "")))
        if match:
            found[match[1].lower()] = name
    return found


def catalog_name(hub_id: str) -> str:
    """The catalog's name for an id, or nothing."""
    return _in_catalog().get(hub_id.lower(), "")


def folder_of(hub_id: str) -> Path:
    """A folder of this machine that holds the model's config.json, downloaded if need be."""
    stored = _stored(hub_id)
    if stored is not None:
        return stored
    why = _download(hub_id)
    stored = _stored(hub_id)
    if stored is not None:
        return stored
    raise ValueError(
        f"model {hub_id!r}: not in the catalog and not in this machine's Hugging Face cache, and {why}; "
        f"write the path of its config.json{_near(hub_id)}"
    )


def _stored(hub_id: str) -> Path | None:
    """The newest snapshot in the cache, where huggingface_hub and transformers keep what they load."""
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    cache_folder = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    snapshots = cache_folder / f"models--{hub_id.replace('/', '--')}" / "snapshots"
    try:
        found = [path for path in snapshots.iterdir() if (path / CONFIG).is_file()]
        return max(found, key=lambda path: path.stat().st_mtime, default=None)
    except (OSError, ValueError):  # ValueError: a file system has no name for it
        return None


def _download(hub_id: str) -> str:
    """Why nothing came, or nothing."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        return "huggingface_hub is not installed (pip install huggingface_hub)"
    try:
        hub.hf_hub_download(hub_id, CONFIG)
    except Exception as error:  # the library raises its own errors, its transport's and the system's
        return f"the hub gave none ({type(error).__name__}: {str(error).strip().splitlines()[0][:100]})"
    try:
        hub.hf_hub_download(hub_id, INDEX)
    except Exception:
        return ""  # small models have no list of weights
    return ""


def _near(hub_id: str) -> str:
    """A hint at the catalog: a model tuned from one that is there, or one of a similar name."""
    name = hub_id.lower()
    for ending in TUNED:
        if catalog_name(name.removesuffix(ending)):
            return f", or {catalog_name(name.removesuffix(ending))!r}, which it seems to be tuned from"
    return f" ({closest(hub_id.partition('/')[2], catalog.names('models'))})"
