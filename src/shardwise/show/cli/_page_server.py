"""The page's server: listens, says where, and ends with Ctrl-C."""

import secrets
import socket
import sys
from contextlib import suppress
from pathlib import Path

from shardwise.show.cli._output import print_json
from shardwise.show.cli.serve import worker_command
from shardwise.show.page.app import page_app
from shardwise.show.page.views import opening_questions
from shardwise.show.page.wire import Listening

BACKLOG = 128
"""connections that wait to be taken up"""
BACKLOG = 128
"""connections that wait to be taken up"""
EVERYWHERE = ("0.0.0.0", "::")


def serve_page(host: str, port: int, token: str, seconds: float, watch: Path | None, *, json: bool) -> None:
    """Says its address once it listens."""
    import uvicorn

    from shardwise.show.page.connections import PageConnection

    secret = secrets.token_urlsafe(18) if token == "new" else token
    listening = _listening(host, port)
    taken = listening.getsockname()[1]
    app = page_app(
        worker_command(), names_of(host, taken), seconds=seconds, token=secret, opening=opening_questions(),
        watched="" if watch is None else str(watch.resolve()),
    )  # fmt: skip
    shown = "localhost" if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{taken}/" + (f"?token={secret}" if secret else "")
    if json:
        print_json(Listening(address, host, taken), whole=True)
    else:
        print(f"page: {address} (Ctrl-C ends it)")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=2,
                            http=PageConnection, ws="none", h11_max_incomplete_event_size=64 * 2**10)  # fmt: skip
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    """A browser may connect as soon as the address is printed, and waits until it is answered."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ValueError(f"port: {port} of {host} cannot be had ({error.strerror}); write another, or 0") from None
    return listening


def names_of(host: str, port: int) -> list[str]:
    """What a browser may call this server by. Listening everywhere, it goes by the machine's own names too."""
    names = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host}
    if host in EVERYWHERE:
        names |= {socket.gethostname(), socket.getfqdn()}
        with suppress(OSError):
            names |= {str(found[4][0]) for found in socket.getaddrinfo(socket.gethostname(), None)}
    return sorted(f"{name}:{port}" for name in names) + ([*sorted(names)] if port == 80 else [])
