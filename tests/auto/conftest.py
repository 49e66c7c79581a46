import pytest

pytest.importorskip("torch", reason="torch is not installed: no model can be split")

from one_thread import one_thread  # noqa: F401  a fixture for every test here
