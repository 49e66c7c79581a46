"""Parameters of every family of text models in transformers against its own module, where transformers is installed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from _transformers_registry import KINDS, Known, counted, judged, known_families


@pytest.fixture(scope="module")
def families() -> list[Known]:
    pytest.importorskip("transformers", reason="transformers is not installed: its registry cannot be walked")
    return list(known_families())


def test_every_family_is_read_right_or_refused_in_one_line(families: list[Known]) -> None:
    results = [(known, *judged(known)) for known in families if known.config]
    for kind in KINDS:
        words = [word for known, word, _ in results if known.kind == kind]
        read = words.count("right")
        print(f"{kind}: families_read {read} / families_tried {len(words) - words.count('unknown')}")
    assert [text for _, word, text in results if word == "wrong"] == []


def test_nine_in_ten_families_of_decoders_are_right_to_a_thousandth(families: list[Known]) -> None:
    tried = [known for known in families if known.kind == "decoder" and known.parameters]
    right = [known for known in tried if judged(known)[0] == "right"]
    assert len(tried) > 100
    assert len(right) >= 0.9 * len(tried)


def test_without_transformers_nothing_is_counted_and_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("_transformers_registry.find_spec", lambda name: None if name == "transformers" else name)
    assert counted() == {
        "families_read": None, "families_tried": None, "families_why": "transformers not installed here",
    }  # fmt: skip


@pytest.mark.parametrize(("parameters", "word"), [(0, "unknown"), (1, "wrong")])
def test_a_wrong_count_is_told_from_one_nobody_knows(parameters: int, word: str) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
              "num_attention_heads": 4, "vocab_size": 100}  # fmt: skip
    assert judged(Known("decoder", "llama", config, parameters))[0] == word
    assert judged(Known("decoder", "llama", {"model_type": "llama"}, parameters))[0] == "refused"
