"""The catalog's name of what a driver calls a GPU: 'NVIDIA H100 80GB HBM3' -> 'h100'.

Each GPU's file has a pattern that its own driver's names fit, and no other GPU's.
"""

import re

from shardwise import catalog


def catalog_gpu(reported: str) -> str | None:
    """The catalog's name, or None for a device it does not know. A name of the catalog is itself."""
    text = reported[:200].strip().lower()
    known = catalog.names("gpus")
    if text in known:
        return text
    forms = ((name, catalog.entry("gpus", name).get("driver_name")) for name in known)
    return next((name for name, form in forms if form and re.search(form, text)), None)
