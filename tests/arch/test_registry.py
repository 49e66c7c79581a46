"""Parameters of every family of text models in transformers against its own module, where transformers is installed."""

import pytest

from shardwise.arch import model_from_config
from shardwise.arch.tensors import parameters
from transformers_registry import KINDS, Known, known_families

TOLERANCE = 1e-3
ALMOST = {"fuyu", "git", "qianfan_ocr"}
"""within 0.2 %: tables beside the towers that no field states"""


@pytest.fixture(scope="module")
def families() -> list[Known]:
    pytest.importorskip("transformers", reason="transformers is not installed: its registry cannot be walked")
    return list(known_families())


def _read(known: Known) -> tuple[str, str]:
    """(right, wrong, refused or unknown; in words)."""
    try:
        count = parameters(model_from_config(known.config, known.model_type))
    except ValueError as error:
        return "refused" if "\n" not in str(error) else "wrong", str(error)
    if not known.parameters:
        return "unknown", f"{known.model_type}: not built by transformers ({known.why})"
    off = count / known.parameters - 1
    limit = 2 * TOLERANCE if known.model_type in ALMOST else TOLERANCE
    return "right" if abs(
        off
    ) <= limit else "wrong", f"{known.model_type}: {count:,} for {known.parameters:,} ({off:+.2%})"


def test_every_family_is_read_right_or_refused_in_one_line(families: list[Known]) -> None:
    results = [(known, *_read(known)) for known in families if known.config]
    for kind in KINDS:
        words = [word for known, word, _ in results if known.kind == kind]
        read = words.count("right")
        print(f"{kind}: families_read {read} / families_tried {len(words) - words.count('unknown')}")
    assert [text for _, word, text in results if word == "wrong"] == []


def test_nine_in_ten_families_of_decoders_are_right_to_a_thousandth(families: list[Known]) -> None:
    tried = [known for known in families if known.kind == "decoder" and known.parameters]
    right = [known for known in tried if _read(known)[0] == "right"]
    assert len(tried) > 100
    assert len(right) >= 0.9 * len(tried)
