"""The one reader of what others wrote: type, range, unit, choice, nearest name; errors of one line with the cure."""

import os
import threading
from typing import Annotated

import pytest
from msgspec import Meta, Struct

from shardwise.fields import Fields, converted, read_file
from shardwise.units import rate_of

DATA = {
    "name": "site", "count": 3, "text_count": "3", "share": 0.5, "text_share": "0.5", "on": True, "yes": "yes",
    "rate": "400 Gbps", "bare": 400, "words": ["a", "b"], "counts": ["1", 2], "nothing": None, "long": "x" * 2000,
    "two lines": "a\n b", "inner": {"deep": {"count": -1}}, "rows": [{"count": 1}, {"cuont": 2}], "empty": " ",
}  # fmt: skip


def fields() -> Fields:
    return Fields(DATA, "file.yaml")


def test_values_typed_or_as_text():
    found = fields()
    assert (found.text("name"), found.text("two lines"), found.text("nothing", default="x")) == ("site", "a b", "x")
    assert found.whole("count") == found.whole("text_count") == found.whole("other", "count") == 3
    assert found.number("share") == found.number("text_share") == 0.5
    assert found.flag("on")
    assert found.flag("yes")
    assert not found.flag("missing")
    assert found.quantity("rate", rate_of, "400 Gbps") == 50e9
    assert found.texts("words", choices=("a", "b", "c")) == ("a", "b")
    assert found.wholes("counts") == (1, 2)
    assert [row.whole("count", default=0) for row in found.sections("rows", "rows")] == [1, 0]
    assert found.section("missing").whole("count", default=7) == 7


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda f: f.text("missing", example="leaf"), "missing is missing; write a text, such as 'missing: leaf'"),
        (lambda f: f.text("count"), "count is 3; write a text"),
        (lambda f: f.text("empty"), "empty is ' '; write a text"),
        (lambda f: f.text("long"), "...; write at most 1000 printable characters"),
        (lambda f: f.text("name", choices=("sites", "town")), "name is 'site'; did you mean 'sites'?"),
        (lambda f: f.whole("share"), "share is 0.5; write a whole number from 1 to 100000000"),
        (lambda f: f.whole("on"), "on is True; write a whole number"),
        (lambda f: f.whole("count", most=2), "count is 3; write a whole number from 1 to 2"),
        (lambda f: f.whole("nothing"), "nothing is missing; write a whole number"),
        (lambda f: f.number("name"), "name is 'site'; write a number from 0 to 1e+18"),
        (lambda f: f.number("share", least=1), "share is 0.5; write a number from 1 to 1e+18"),
        (lambda f: f.flag("name"), "name is 'site'; write true or false"),
        (lambda f: f.quantity("bare", rate_of, "400 Gbps"), "bare: '400' has no unit"),
        (lambda f: f.texts("words", choices=("a",)), "write a list of 0 to 4096 words out of a"),
        (lambda f: f.texts("words", least=3, most=3), "words is ['a', 'b']; write a list of 3 words"),
        (lambda f: f.wholes("words"), "write a list of at most 4096 whole numbers from 1 to 100000000"),
        (lambda f: f.section("name"), "name: 'site' is not a mapping; write fields under it"),
        (lambda f: f.section("inner").section("deep").whole("count"), "inner.deep.count is -1; write a whole number"),
        (lambda f: f.sections("rows", "a row", most=1), "rows has 2 entries; write 1 to 1, a row"),
        (lambda f: _done(f.sections("rows", "a row")[1]), "rows[1].cuont is unknown; did you mean 'count'?"),
    ],
)
def test_an_error_names_place_field_value_and_cure(read, said):
    with pytest.raises(ValueError, match=r"^file\.yaml: [^\n]+$") as caught:
        read(fields())
    assert said in str(caught.value)


def _done(row: Fields) -> None:
    row.whole("count", default=1)
    row.done()


class Inner(Struct, frozen=True, forbid_unknown_fields=True):
    share: Annotated[float, Meta(le=1)] = 1.0


class Outer(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "x: name is missing; write a file"),
        ({"name": "a", "inner": {"shrae": 1}}, "x: inner.shrae is unknown; did you mean 'share'?"),
        ({"name": "a", "inner": {"share": 2}}, "x: inner.share is 2: Expected `float` <= 1.0; write a file"),
        ({"name": 3}, "x: name is 3: Expected `str`, got `int`; write a file"),
        ([], "x: it: Expected `object`, got `array`; write a file"),
    ],
)
def test_a_struct_from_data_that_does_not_suit_it(data, said):
    with pytest.raises(ValueError, match=r"^x: ") as caught:
        converted(data, Outer, "x", "a file")
    assert str(caught.value) == said


def test_a_struct_from_data_that_suits_it():
    assert converted({"name": "a", "inner": {"share": 0.5}}, Outer, "x", "a file") == Outer("a", Inner(0.5))


def test_files_are_read_within_bounds(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"12345")
    assert read_file(path, "from", 5, "a file") == b"12345"
    for wrong, most, said in (
        (path, 4, "from: 'f' is larger than"), (tmp_path, 9, "there is no file"),
        (tmp_path / "g", 9, "there is no file"),
        (tmp_path / "a\0b", 9, "from: "), (tmp_path / ("x" * 5000), 9, "from: "),
    ):  # fmt: skip
        for pipes in (False, True):
            with pytest.raises(ValueError, match=r"; write a file$") as caught:
                read_file(wrong, "from", most, "a file", pipes=pipes)
            assert pipes or said in str(caught.value)


@pytest.fixture
def pipe(tmp_path, monkeypatch):
    monkeypatch.setattr("shardwise.fields.SILENCE_S", 0.5)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_pipe_is_read_to_its_end(pipe):
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"x" * 300_000))
    writer.start()
    assert read_file(pipe, "from", 10**6, "a file", pipes=True) == b"x" * 300_000
    writer.join()


def test_a_pipe_nobody_writes_into_is_not_waited_for(pipe):
    with pytest.raises(ValueError, match=r"^from: nothing came from .*pipe' for 0\.5 s; write a file$"):
        read_file(pipe, "from", 10, "a file", pipes=True)
    with pytest.raises(ValueError, match=r"^from: there is no file"):
        read_file(pipe, "from", 10, "a file")


@pytest.mark.parametrize("name", ["/dev/zero", "hole"])
def test_what_never_ends_is_too_large(name, tmp_path):
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match="is larger than 1 MiB"):
        read_file(tmp_path / name, "from", 2**20, "a file", pipes=True)
