"""Tokens come in an order anyone can repeat, each window once an epoch, whatever the number of ranks."""

import json
import os

import pytest

pytest.importorskip("torch")
import numpy as np

from shardwise.run.runtime.data import cache
from shardwise.run.runtime.data.built_in import built_in_corpus, built_in_text
from shardwise.run.runtime.data.files import files_of
from shardwise.run.runtime.data.texts import TokenFiles, tokens_of
from shardwise.run.runtime.data.tokenizer import tokenizer_of
from shardwise.run.runtime.data.windows import Windows

SEQ = 32
TEXT = np.frombuffer(built_in_text(4096), dtype=np.uint8)


def windows_of(part: str = "all", seed: int = 1) -> Windows:
    return Windows(TEXT, SEQ, seed, name="text", part=part)


def test_text_is_ascii_and_repeatable() -> None:
    text = built_in_text(5000)
    assert text == built_in_text(5000)
    assert text != built_in_text(5000, seed=1)
    assert len(text) == 5000
    assert max(text) < 128


def test_every_window_once_an_epoch_in_another_order() -> None:
    windows = windows_of()
    one = [windows.sample(i).tobytes() for i in range(windows.windows)]
    two = [windows.sample(windows.windows + i).tobytes() for i in range(windows.windows)]
    assert len(set(one)) == windows.windows
    assert set(one) == set(two)
    assert one != two


def test_a_sample_follows_from_its_number() -> None:
    for i in (300, 5, 130):
        assert np.array_equal(windows_of().sample(i), windows_of().sample(i))


def test_targets_are_the_next_tokens() -> None:
    inputs, targets = windows_of().batch(3, 2)
    assert inputs.shape == targets.shape == (SEQ, 2)
    assert inputs[1:].equal(targets[:-1])
    assert bytes(inputs[:, 1].numpy().astype(np.uint8)) in built_in_text(4096)


def test_held_out_windows_are_not_trained_on() -> None:
    trained, held_out = windows_of("trained"), windows_of("held out")
    assert trained.windows + held_out.windows == windows_of().windows
    seen = {trained.sample(i).tobytes() for i in range(trained.windows)}
    kept = {held_out.sample(i).tobytes() for i in range(held_out.windows)}
    assert not seen & kept
    with pytest.raises(ValueError, match="--eval-data"):
        Windows(TEXT[:40], SEQ, 0, name="text", part="held out")


def test_several_files_are_one_run(tmp_path) -> None:
    parts = [TEXT[:5], TEXT[5:6], TEXT[6:300]]
    joined = TokenFiles(parts)
    assert len(joined) == 300
    for first, end in ((0, 300), (4, 7), (5, 6), (10, 20), (299, 400)):
        assert np.array_equal(joined[first:end], TEXT[:300][first:end])
    for index, part in enumerate(parts):
        (tmp_path / f"{index}.txt").write_bytes(part.tobytes())
    (tmp_path / ".hidden").write_text("not this")
    found = tokens_of([str(tmp_path)], "byte", "", 256, "data")
    assert np.array_equal(found[0:300], TEXT[:300])


def test_files_folders_and_patterns(tmp_path) -> None:
    for name in ("b.txt", "a.txt", "c.md", "deep/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    names = lambda *asked: [p.name for p in files_of([str(tmp_path / a) for a in asked], "data")]  # noqa: E731
    assert names("*.txt") == ["a.txt", "b.txt"]
    assert names("") == ["a.txt", "b.txt", "c.md", "d.txt"]
    assert names("c.md", "**/*.txt") == ["c.md", "a.txt", "b.txt", "d.txt"]
    with pytest.raises(ValueError, match=r"data: .*nothing.*write a text file"):
        names("nothing*")


@pytest.mark.parametrize(("size", "vocab", "word"), [(4096, 64, "past the model's"), (0, 256, "empty")])
def test_refuses(tmp_path, size: int, vocab: int, word: str) -> None:
    path = built_in_corpus(tmp_path, size)
    with pytest.raises(ValueError, match=word):
        tokens_of([str(path)], "byte", "", vocab, "data")
    with pytest.raises(ValueError, match="at least"):
        Windows(TEXT[:10], SEQ, 0, name="text")


class Letters:
    """A tokenizer of our own, so that the cache is tested where no package is."""

    key, dtype = "letters", np.uint16

    def __init__(self) -> None:
        self.texts = 0

    def encode(self, texts):
        self.texts += len(texts)
        return [np.array([ord(c) for c in text], dtype=np.uint16) for text in texts]

    def end(self) -> int:
        return 7


def test_tokens_are_written_once_and_mapped(tmp_path) -> None:
    files, letters = [tmp_path / "a.txt", tmp_path / "b.txt"], Letters()
    files[0].write_text("für\nuns\n")
    files[1].write_text("alle")
    tokens, largest = cache.cached(files, letters, tmp_path / "cache")
    assert isinstance(tokens, np.memmap)
    assert bytes(np.asarray(tokens, dtype=np.uint8)) == "für\nuns\n".encode("latin-1") + b"\7alle\7"
    assert largest == ord("ü")
    assert cache.cached(files, letters, tmp_path / "cache")[0].tobytes() == tokens.tobytes()
    assert letters.texts == 2, "the second time nothing is tokenized"
    files[1].write_text("alle!")
    os.utime(files[1], ns=(1, 1))
    assert len(cache.cached(files, letters, tmp_path / "cache")[0]) == len(tokens) + 1


def test_a_cache_that_is_not_whole_is_written_again(tmp_path) -> None:
    file, letters = tmp_path / "a.txt", Letters()
    file.write_text("hello")
    cache.cached([file], letters, tmp_path)
    (binary,) = tmp_path.glob("*.bin")
    binary.write_bytes(b"\0")
    assert len(cache.cached([file], letters, tmp_path)[0]) == 6
    (header,) = tmp_path.glob("*.json")
    header.write_text("{}")
    assert len(cache.cached([file], letters, tmp_path)[0]) == 6
    assert letters.texts == 3
    right = binary.read_bytes()
    binary.write_bytes(bytes(len(right)))
    assert cache.cached([file], letters, tmp_path)[0].tobytes() == right, "other tokens of the same length"
    assert letters.texts == 4
    assert not list(tmp_path.glob(".*")), "nothing half written is left"


def test_text_that_is_no_text(tmp_path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ValueError, match="UTF-8"):
        cache.cached([file], Letters(), tmp_path)


def test_tokenizer_without_its_package(monkeypatch) -> None:
    monkeypatch.setattr("shardwise.run.runtime.data.tokenizer.find_spec", lambda _: None)
    with pytest.raises(ValueError, match="pip install tokenizers"):
        tokenizer_of("tokenizer.json")


def test_hugging_face_tokenizer(tmp_path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<eos>": 0, "one": 1, "two": 2, "?": 3}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path, text = tmp_path / "tokenizer.json", tmp_path / "text.txt"
    made.save(str(path))
    text.write_text("one two\ntwo three\n")
    for name in (path, tmp_path):
        found = tokens_of([str(text)], str(name), str(tmp_path / "cache"), 4, "data")
        assert list(found) == [1, 2, 2, 3, 0]
    with pytest.raises(ValueError, match="token 3 is past the model's 3"):
        tokens_of([str(text)], str(path), str(tmp_path / "cache"), 3, "data")
    path.write_text(json.dumps({"model": "?"}))
    for wrong in (str(path), str(tmp_path / "none.json")):
        with pytest.raises(ValueError, match="tokenizer: "):
            tokenizer_of(wrong)
