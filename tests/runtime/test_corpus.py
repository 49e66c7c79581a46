"""Tokens come in an order anyone can repeat, each window once an epoch, whatever the number of ranks."""

import pytest

pytest.importorskip("torch")
import numpy as np

from shardwise.runtime.train.corpus import ByteWindows, built_in_corpus, built_in_text

SEQ = 32


@pytest.fixture
def windows(tmp_path):
    return ByteWindows(built_in_corpus(tmp_path, 4096), SEQ, 256, seed=1)


def test_text_is_ascii_and_repeatable() -> None:
    text = built_in_text(5000)
    assert text == built_in_text(5000)
    assert text != built_in_text(5000, seed=1)
    assert len(text) == 5000
    assert max(text) < 128


def test_every_window_once_an_epoch(windows) -> None:
    first = {windows.sample(i).tobytes() for i in range(windows.windows)}
    second = {windows.sample(windows.windows + i).tobytes() for i in range(windows.windows)}
    assert len(first) == windows.windows
    assert first == second


def test_order_changes_from_epoch_to_epoch(windows) -> None:
    one = [windows.sample(i).tobytes() for i in range(windows.windows)]
    two = [windows.sample(windows.windows + i).tobytes() for i in range(windows.windows)]
    assert one != two


def test_a_sample_follows_from_its_number(windows, tmp_path) -> None:
    again = ByteWindows(built_in_corpus(tmp_path, 4096), SEQ, 256, seed=1)
    for i in (300, 5, 130):
        assert np.array_equal(again.sample(i), windows.sample(i))


def test_targets_are_the_next_bytes(windows) -> None:
    sample = windows.sample(3)
    assert len(sample) == SEQ + 1
    assert bytes(sample.astype(np.uint8)) in built_in_text(4096)


@pytest.mark.parametrize(
    ("size", "vocab", "word"), [(10, 256, "at least"), (4096, 64, "past the model's"), (None, 256, "cannot be read")]
)
def test_refuses(tmp_path, size, vocab: int, word: str) -> None:
    path = tmp_path / "none.txt" if size is None else built_in_corpus(tmp_path, size)
    with pytest.raises(ValueError, match=word):
        ByteWindows(path, SEQ, vocab, seed=0)
