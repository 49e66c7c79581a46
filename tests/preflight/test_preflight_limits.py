"""Lines between the verdicts are data: each has a source, and each is asked for somewhere."""

import re
from pathlib import Path

import pytest

from shardwise.run import preflight
from shardwise.run.preflight.limits import limit, limits, listed


def test_every_line_has_a_source_and_is_used():
    code = "".join(path.read_text(encoding="utf-8") for path in Path(preflight.__file__).parent.rglob("*.py"))
    used = set(re.findall(r"""(?:limit|listed)\(["']([a-z_.0-9]+)["']\)""", code))
    assert used == set(limits())
    assert all(each.source for each in limits().values())


def test_a_list_is_no_number():
    assert 79 in listed("log.xid_fail")
    with pytest.raises(TypeError):
        limit("log.xid_fail")
    with pytest.raises(TypeError):
        listed("gpu.dram_errors")
