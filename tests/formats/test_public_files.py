"""Published launch files say what they say: split, batch and precision are read as written."""

import pytest

from formats.public import PUBLIC
from shardwise.programs.formats import Known, read_launch


@pytest.mark.parametrize("file", PUBLIC, ids=lambda file: f"{file.target}-{file.name}")
def test_a_published_file_is_read(file, tmp_path):
    (tmp_path / file.name).write_text(file.text)
    target, found = read_launch([tmp_path / file.name], Known(file.gpus, file.layers))
    assert target.name == file.target
    assert {name: getattr(found.policy, name) for name in file.policy} == file.policy
    assert {name: getattr(found, name) for name in file.facts} == file.facts
    assert "@" in file.source
