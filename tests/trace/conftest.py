"""One thread for everything that computes here."""

from one_thread import one_thread

__all__ = ["one_thread"]
