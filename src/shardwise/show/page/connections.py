"""Connections that cannot stall the page: a request has to be sent, and its answer read, in bounded time.

uvicorn closes a connection only between two requests. One on which half a request came, or none, would stay open, and a
few hundred of them would take the place of whoever asks.
"""

from asyncio import TimerHandle, Transport
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class PageConnection(H11Protocol):
    headers_s = 10.0
    """from the connection, or the answer before, to the end of a request's headers"""
    body_s = 120.0
    """from there to the end of its body"""
    unread_s = 60.0
    """without a byte of its answer read"""
    most = 150
    """connections open at once: one more closes the oldest that has not sent a whole request"""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._waits_for = ""
        self._unread = 0
        self._timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.opened_s = self.loop.time()
        self._watch()
        there = [each for each in self.connections if isinstance(each, PageConnection)]
        open_now = [each for each in there if not each.transport.is_closing()]
        if len(open_now) > self.most:
            unsent = [each for each in open_now if each._waits_for in ("headers", "body")]
            min(unsent, key=lambda each: each.opened_s).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_for("")
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for("reader", self.unread_s)
        self._unread = self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._wait_for("")
        self._watch()

    def _watch(self) -> None:
        state = self.conn.their_state
        if self._waits_for == "reader":
            return
        if state is h11.IDLE:
            self._wait_for("headers", self.headers_s)
        elif state is h11.SEND_BODY:
            self._wait_for("body", self.body_s)
        else:
            self._wait_for("")

    def _wait_for(self, what: str, seconds: float = 0.0) -> None:
        """What keeps coming in small pieces starts no clock anew."""
        if what == self._waits_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._waits_for = what
        self._timer = self.loop.call_later(seconds, self._late) if what else None

    def _late(self) -> None:
        before, self._unread = self._unread, self.transport.get_write_buffer_size()
        if self._waits_for == "reader" and self._unread < before:
            self._timer = self.loop.call_later(self.unread_s, self._late)
        else:
            self.transport.abort()
