"""Ranks of one machine talk over its loopback interface: nobody else on the network can."""

import os
import socket
import sys

ADDRESS = "127.0.0.1"
INTERFACE = "lo0" if sys.platform == "darwin" else "lo"


def use_loopback() -> None:
    """For the process groups this process and its children make; who named an interface keeps it."""
    for backend in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{backend}_SOCKET_IFNAME", INTERFACE)


def listener() -> socket.socket:
    """For the store that ranks find each other by; torch's own would listen on every interface."""
    found = socket.socket()
    found.bind((ADDRESS, 0))
    found.listen(socket.SOMAXCONN)
    return found
