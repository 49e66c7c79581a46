"""The catalog's name of what a driver calls a GPU: 'NVIDIA H100 80GB HBM3' -> 'h100'."""

import re

from shardwise import catalog

# First match wins, so the special forms of a chip stand before the plain one.
_FORMS = (
    (r"gb300", "gb300"), (r"gb200", "gb200"), (r"gh200", "gh200"), (r"b300", "b300"), (r"b200", "b200"),
    (r"b100", "b100"), (r"h200(?! nvl)", "h200"), (r"h100.*pcie", "h100-pcie"), (r"h100.*(94|96) ?gb", "h100-96"),
    (r"h100(?! nvl)", "h100"), (r"h800", "h800"), (r"h20(?!\d)", "h20"), (r"a100.*80 ?gb.*pcie", "a100-80-pcie"),
    (r"a100.*80 ?gb", "a100-80"), (r"a100.*40 ?gb", "a100-40"), (r"v100", "v100"), (r"rtx 4090(?! d)", "rtx4090"),
    (r"mi300x", "mi300x"),
)  # fmt: skip


def catalog_gpu(reported: str) -> str | None:
    """The catalog's name, or None for a device it does not know. A name of the catalog is itself."""
    text = reported[:200].strip().lower()
    known = catalog.names("gpus")
    if text in known:
        return text
    return next((name for form, name in _FORMS if re.search(form, text) and name in known), None)
