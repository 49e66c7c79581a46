"""One thread: on shared cores the threads of a small operation wait for each other longer than they work."""

import pytest


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be measured")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
