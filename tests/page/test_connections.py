"""Half a request, none, or an answer that nobody reads: raw sockets on loopback, a few of them."""

import socket
import threading
from contextlib import ExitStack, contextmanager

import pytest

uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'shardwise[page]'")
from shardwise.show.page.connections import PageConnection  # noqa: E402  needs it

HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-More: "
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc"
LONG = 64 * 2**20
PATIENCE_S = 30.0
NEVER_S = 3600.0


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    message = {"more_body": True}
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * (LONG if scope["path"] == "/long" else 5)})


@contextmanager
def served(**limits):
    """The port of a server with these limits; all others are out of reach."""
    usual = {"headers_s": NEVER_S, "body_s": NEVER_S, "unread_s": NEVER_S, "most": 1000}
    made = type("Limited", (PageConnection,), {**usual, **limits})
    config = uvicorn.Config(app, http=made, ws="none", lifespan="off", log_level="error", timeout_keep_alive=NEVER_S)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            thread.join(PATIENCE_S)


@contextmanager
def connected(port, sent=b""):
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as made:
        made.sendall(sent)
        yield made


def closed(connection):
    """By the server; a time-out of the socket is an error."""
    try:
        while connection.recv(2**16):
            pass
    except ConnectionError:
        pass
    return True


def answered(port):
    with connected(port, WHOLE) as asking:
        return asking.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", HALF, WHOLE + HALF], ids=["nothing", "half", "after another"])
def test_headers_that_do_not_end_close_the_connection(sent):
    with served(headers_s=0.2) as port, connected(port, sent) as waiting:
        assert closed(waiting)
        assert answered(port)


def test_a_body_that_does_not_end_closes_the_connection():
    with served(body_s=0.2) as port, connected(port, BODY) as waiting:
        assert closed(waiting)
        assert answered(port)


def test_pieces_do_not_start_the_clock_anew():
    """A piece is sent until the server is gone; it has an end, should it never be."""
    with served(headers_s=0.3) as port, connected(port, HALF) as waiting:
        waiting.settimeout(0.02)
        for _ in range(1500):
            try:
                waiting.sendall(b"x")
                if not waiting.recv(1):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("the connection stays open as long as pieces come")


def test_an_answer_that_nobody_reads_closes_the_connection():
    with served(unread_s=0.2) as port, connected(port, WHOLE.replace(b"/ ", b"/long ", 1)) as idle:
        threading.Event().wait(1.0)
        received = 0
        try:
            while piece := idle.recv(2**20):
                received += len(piece)
        except ConnectionError:
            pass
        assert received < LONG
        assert answered(port)


def test_an_answer_that_is_read_slowly_is_read_to_its_end():
    with served(unread_s=0.3) as port, connected(port, WHOLE.replace(b"/ ", b"/long ", 1)) as slow:
        received = 0
        while received < LONG:
            piece = slow.recv(2**20)
            assert piece
            received += len(piece)
            threading.Event().wait(0.01)


def test_one_connection_too_many_closes_the_oldest_that_asked_nothing():
    with served(most=6) as port, ExitStack() as opened:
        answering = opened.enter_context(connected(port, WHOLE.replace(b"/ ", b"/long ", 1)))
        assert answering.recv(12) == b"HTTP/1.1 200"
        half = [opened.enter_context(connected(port, HALF)) for _ in range(12)]
        assert answered(port)
        assert all(closed(each) for each in half[:6])
        half[-1].sendall(b"x\r\n\r\n")
        assert half[-1].recv(12) == b"HTTP/1.1 200"
        received = 0
        while received < LONG:
            received += len(answering.recv(2**20))


def test_a_whole_request_is_answered_however_long_it_takes():
    with served(headers_s=0.1, body_s=0.1) as port, connected(port, WHOLE.replace(b"/ ", b"/long ", 1)) as slow:
        threading.Event().wait(0.3)
        received = 0
        while received < LONG:
            piece = slow.recv(2**20)
            assert piece
            received += len(piece)
