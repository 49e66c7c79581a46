"""What a user names as an output is written whole, and nothing of theirs is lost by it."""

import gzip
import os
import stat
from pathlib import Path

import pytest

from shardwise.whole_file import OutputFile, moved_to

MARK = b"# by shardwise"
CONTENT = MARK + b"\nnew\n"


def written(path, **options):
    OutputFile(path, "out", MARK, **options).write(CONTENT)
    return path.read_bytes()


def test_new_empty_and_our_own_files_are_written(tmp_path):
    path = tmp_path / "a.txt"
    assert written(path) == CONTENT
    path.write_bytes(MARK + b"\nold\n")
    assert written(path) == CONTENT
    path.write_bytes(b"")
    assert written(path) == CONTENT
    path.write_bytes(gzip.compress(MARK + b"\nold\n"))
    assert written(path) == CONTENT
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "theirs",
    [b"theirs", gzip.compress(b"theirs", mtime=0), b"\x1f\x8bno gzip", b" " * 5000 + MARK],
    ids=["text", "packed", "damaged", "mark far behind"],
)
def test_what_somebody_else_wrote_stays_unless_told(tmp_path, theirs):
    path = tmp_path / "a.txt"
    path.write_bytes(theirs)
    with pytest.raises(ValueError, match=r"^out: .* was not written by shardwise for this; .*--overwrite$"):
        OutputFile(path, "out", MARK)
    assert path.read_bytes() == theirs
    assert written(path, overwrite=True) == CONTENT


def test_behind_a_link_the_file_is_replaced_and_the_link_stays(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to("target")
    assert written(link) == CONTENT
    assert link.is_symlink()
    assert target.read_bytes() == CONTENT
    target.write_bytes(b"theirs")
    with pytest.raises(ValueError, match="not written by shardwise"):
        OutputFile(link, "out", MARK)


def test_a_loop_of_links_is_refused_in_one_line(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(ValueError, match=r"^out: .* cannot be written \(Too many levels of symbolic links\)"):
        OutputFile(tmp_path / "a", "out", MARK).write(CONTENT)
    assert (tmp_path / "a").is_symlink()


def test_a_device_is_written_into_and_stays_a_device():
    OutputFile(Path("/dev/null"), "out", MARK).write(CONTENT)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_full_device_is_said_and_stays_a_device():
    full = Path("/dev/full")
    with pytest.raises(ValueError, match=r"^out: '/dev/full' cannot be written \(No space left on device\)"):
        OutputFile(full, "out", MARK).write(CONTENT)
    assert stat.S_ISCHR(full.stat().st_mode)


def test_a_pipe_that_nobody_reads_does_not_hang(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match=r"^out: .* cannot be written \(No such device or address\)"):
        OutputFile(pipe, "out", MARK).write(CONTENT)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    OutputFile(pipe, "out", MARK).write(CONTENT)
    assert os.read(reader, 100) == CONTENT
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize(("name", "wanted"), [("", "is a folder"), ("no/a", "there is no such folder")])
def test_folders_are_no_files(tmp_path, name, wanted):
    with pytest.raises(ValueError, match=wanted):
        OutputFile(tmp_path / name, "out", MARK)


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def interrupted():
        with moved_to(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
