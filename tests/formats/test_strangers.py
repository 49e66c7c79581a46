"""Whatever a file holds, reading it ends soon: with what it says, or with one line on what is wrong."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats.public import PUBLIC
from shardwise.formats import Known, read_launch

NAMES = ("a.sh", "a.yaml", "a.json", "a.toml", "a")
PIECES = st.sampled_from(
    ["--tensor-model-parallel-size ", "${", "}", "$(", ")", "$((", "))", '"', "'", "\\", "\n", "A=", "A=(", "<<EOF\n",
     "8", "-1", "1e9", " ", "|", "source ", "#SBATCH --nodes=", "parallelism:\n  dp: ", "*a", "&a ", "[", "{", ": "]
)  # fmt: skip


def outcome(tmp_path, name, text) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8", errors="replace")
    try:
        read_launch([tmp_path / name], Known(8, 32))
    except ValueError as error:
        said = str(error)
    else:
        said = ""
    assert len(said.splitlines()) <= 3


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(NAMES), pieces=st.lists(st.one_of(PIECES, st.text(max_size=6)), max_size=30))
def test_random_files(name, pieces, tmp_path):
    outcome(tmp_path, name, "".join(pieces))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(file=st.sampled_from(PUBLIC), at=st.floats(0, 1), cut=st.integers(0, 12), piece=PIECES)
def test_damaged_files(file, at, cut, piece, tmp_path):
    place = int(at * len(file.text))
    outcome(tmp_path, file.name, file.text[:place] + piece + file.text[place + cut :])


@pytest.mark.parametrize(
    "text",
    [
        "run --a " + "${A:-" * 5000 + "}" * 5000,
        "run --a " + "$((" * 5000 + "1" + "))" * 5000,
        "cat <<E\nE\n" * 20_000,
        "A+=x\n" * 50_000,
        "run --a $((" + "9*" * 90 + "9))",
        "(" * 100_000,
        "a: " * 30_000,
    ],
    ids=range(7),
)
def test_what_would_take_long_does_not(text, tmp_path):
    start = time.process_time()
    outcome(tmp_path, "a.sh", text)
    assert time.process_time() - start < 20
