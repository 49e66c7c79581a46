"""Whatever a file holds, reading it ends soon: with what it says, or with one line on what is wrong."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats.public import PUBLIC
from launches import launch_of
from shardwise.programs.formats import Known, Launch, expressed, format_of, read_documents, read_launch, settled
from shardwise.programs.formats._fix import fixed
from shardwise.programs.formats._source import open_document
from shardwise.spec.policy import Policy

CASE = launch_of(format_of("megatron"), Policy(dp=8), "llama-3-8b").case
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


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(file=st.sampled_from(PUBLIC), at=st.floats(0, 1), cut=st.integers(0, 6), piece=PIECES, zero=st.integers(0, 3))
def test_changes_in_damaged_files(file, at, cut, piece, zero, tmp_path):
    """A change is made and read back, or it is one line on why not."""
    place = int(at * len(file.text))
    path = tmp_path / file.name
    path.write_text(file.text[:place] + piece + file.text[place + cut :])
    try:
        documents = [open_document(path)]
        target, found = read_documents(documents, Known(8, 32))
        launch = Launch(CASE, settled(found.policy, CASE), version=found.version)
        wanted = launch_of(target, Policy(dp=8, zero=zero), "llama-3-8b", found.version)
        policy = expressed(target, wanted)[0].policy
        done = fixed(target, documents, launch, policy, Known(8, 32))
    except ValueError as error:
        said = str(error)
    else:
        said = ""
    assert len(said.splitlines()) <= 3
    if said:
        return
    path.write_text(done.texts.get(path, documents[0].text))
    again = read_launch([path], Known(8, 32), target.name)[1]
    assert settled(again.policy, CASE) == policy


def test_nothing_outside_the_folder_is_read(tmp_path):
    inside = tmp_path / "run"
    inside.mkdir()
    (tmp_path / "secret.sh").write_text("TP=4\n")
    (inside / "link.sh").symlink_to(tmp_path / "secret.sh")
    (inside / "a.sh").write_text(
        "source link.sh\n. /proc/self/environ\nsource ~/.bashrc\n. .\n"
        "python pretrain_gpt.py --tensor-model-parallel-size ${TP:-2}\n"
    )
    _, found = read_launch([inside / "a.sh"], Known(8))
    assert found.policy.tp == 2
    (note,) = (note for note in found.notes if "not read" in note)
    assert all(name in note for name in ("link.sh", "/proc/self/environ", "~/.bashrc", ", ."))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "a: &a [x, x]\nb: &b [*a, *a]\n" + "c: [*b, *b]\n", "aliases"),
        ("a.yaml", "ici_fsdp_parallelism: 8\nper_device_batch_size: .inf\n", "write a number"),
        ("a.yaml", "ici_fsdp_parallelism: 8\nper_device_batch_size: 1e999\n", "write a number below"),
        ("a.yaml", "distributed_type: FSDP\nparallelism_config: {parallelism_config_tp_size: 8}\n", "is not stated"),
        ("a.toml", "[parallelism]\ntensor_parallel_degree = " + "9" * 5000 + "\n", "not TOML"),
        ("a.json", '{"zero_optimization": {"stage": ' + "9" * 5000 + "}}", "not JSON"),
        ("a.yaml", "x: 1\n" * 30_000, "more than 20000 values"),
    ],
    ids=range(7),
)
def test_hostile_files_are_refused(name, text, said, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said) as told:
        read_launch([tmp_path / name], Known())
    assert len(str(told.value)) < 400
