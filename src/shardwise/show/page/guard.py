"""Who may ask: Host and Origin of a request, its token where one is set, its size; and the headers of every answer.

A page in another tab can send requests to a server of this machine, and a name can be made to point here: both are told
by these headers, so a request that does not come from the page itself is refused before anything reads it.
"""

import hmac
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "shardwise_token"
MOST_BYTES = 12 * 2**20
"""of a request: a packed trace is the longest part of one"""
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """Around the whole app."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], token: str = "") -> None:
        self.app = app
        self.hosts = frozenset(host.lower() for host in hosts)
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # websockets: there are none
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, _with_headers(send))
            return
        await self.app(scope, _bounded(receive), _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if host not in self.hosts:
            return PlainTextResponse(f"host: {host[:80]!r} is not this server's name", 421)
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{name}" for name in self.hosts}:
            return PlainTextResponse("origin: only the page itself may ask", 403)
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return PlainTextResponse("origin: only the page itself may ask", 403)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return PlainTextResponse(f"a request has at most {MOST_BYTES:,} bytes", 413)
        return self._stranger(scope, headers) if self.token else None

    def _stranger(self, scope: Scope, headers: Headers) -> Response | None:
        """The token comes once in the link, then in a cookie no script can read."""
        given = QueryParams(scope["query_string"]).get("token", "")
        if given and hmac.compare_digest(given.encode(), self.token.encode()) and scope["path"] == "/":
            home = RedirectResponse("/", 303)
            home.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            return home
        try:
            kept = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            kept = None
        value = kept.value if kept is not None else headers.get("authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(value.encode(), self.token.encode()):
            return None
        return PlainTextResponse("token: open the link that `shardwise serve` printed", 401)


def _with_headers(send: Send) -> Send:
    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return told


def _bounded(receive: Receive) -> Receive:
    """A request that lies about its length is cut off: the rest counts as the client having gone."""
    got = 0

    async def counted() -> Message:
        nonlocal got
        message = await receive()
        got += len(message.get("body", b""))
        return {"type": "http.disconnect"} if got > MOST_BYTES else message

    return counted
