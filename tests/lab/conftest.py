"""Where namespaces are not allowed the tests that build labs are skipped, and say why."""

import pytest

from shardwise_lab.probe import allowed


@pytest.fixture(scope="session")
def namespaces():
    found = allowed()
    if found.missing or not found.root:
        pytest.skip(f"no lab here: {'; '.join(found.missing) or 'not root'}")
    return found
