"""On shared cores the threads of a small operation wait for each other longer than they work."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    try:
        import torch
    except ImportError:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
