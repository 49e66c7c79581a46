"""The server: the page's files, what its forms offer, and the one place where questions are asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from shardwise.show.page.answers import Answers, Trouble, problem_of, trouble_data
from shardwise.show.page.files import PARTS, lessons_json, page_script, terms_json
from shardwise.show.page.guard import Guard
from shardwise.show.page.questions import STATIC, PageRequest, Refused, question_of
from shardwise.show.page.theme import theme_css
from shardwise.show.page.workers import Pool, Progress

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
JSON = "application/json"
EVENTS = "text/event-stream"
BEAT_S = 10.0
"""between two signs of life, so that whoever went is noticed"""


def page_app(
    command: Sequence[str],
    hosts: Sequence[str],
    *,
    seconds: float,
    token: str = "",
    opening: Sequence[PageRequest] = (),
    watched: str = "",
) -> ASGIApp:
    """`command` starts a process that answers; `hosts`: names this server goes by; `opening`: questions the page begins
    with, answered before anyone asks; `watched`: the one run that may be looked at."""
    answers = Answers(Pool(command, seconds), watched)

    @asynccontextmanager
    async def alive(_: Starlette) -> AsyncIterator[None]:
        await answers.pool.open()
        first = asyncio.create_task(_ready(answers, opening))
        try:
            yield
        finally:
            first.cancel()
            await answers.pool.close()

    routes = [
        Route("/", _file_at("index.html")),
        *(Route(f"/{path}", _file_at(path)) for path in PARTS if path != "index.html"),
        Route("/page.js", _given(page_script, KINDS[".js"])),
        Route("/theme.css", _given(theme_css, "text/css")),
        Route("/lessons.json", _given(lessons_json, JSON)),
        Route("/terms.json", _given(terms_json, JSON)),
        Route("/api/ask", _asking(answers), methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes, lifespan=alive), hosts, token)


async def _ready(answers: Answers, opening: Sequence[PageRequest]) -> None:
    for question in opening:
        with suppress(Refused, Trouble):
            await answers.of(question)


Endpoint = Callable[[Request], Awaitable[Response]]


def _file_at(path: str) -> Endpoint:
    async def send(_: Request) -> Response:
        kind = KINDS[Path(path).suffix]
        return Response((STATIC / path).read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})

    return send


def _given(make: Callable[[], str], kind: str) -> Endpoint:
    async def send(_: Request) -> Response:
        return Response(make(), media_type=kind, headers={"cache-control": "no-cache"})

    return send


def _asking(answers: Answers) -> Endpoint:
    async def ask(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != JSON:
            return _problem(Refused("question", "", "send it as application/json"))
        try:
            question = question_of(await request.body())
        except Refused as error:
            return _problem(error)
        except ClientDisconnect:
            return Response(status_code=413)
        if EVENTS in request.headers.get("accept", ""):
            return StreamingResponse(_events(answers, question), media_type=EVENTS)
        return await _unless_gone(request, answers, question)

    return ask


def _problem(error: Refused | Trouble) -> Response:
    status, body = trouble_data(error)
    return Response(body, status, media_type=JSON)


async def _unless_gone(request: Request, answers: Answers, question: PageRequest) -> Response:
    """Whoever asked and went does not keep a process busy."""
    working = asyncio.create_task(answers.of(question))
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return Response(status_code=499)
        return Response(working.result(), media_type=JSON, headers={"cache-control": "no-store"})
    except (Refused, Trouble) as error:
        return _problem(error)
    finally:
        for task in (working, gone):
            task.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _events(answers: Answers, question: PageRequest) -> AsyncIterator[bytes]:
    """Server-sent events: progress, and what is found so far, as it comes, then the answer or what is wrong. Closed
    early, the work ends."""
    told: asyncio.Queue[Any] = asyncio.Queue()
    working = asyncio.create_task(answers.of(question, told.put_nowait))
    try:
        while not working.done():
            hearing = asyncio.create_task(told.get())
            await asyncio.wait({working, hearing}, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
            if hearing.done():
                yield _news(hearing.result())
            elif not working.done():
                yield b": still at work\n\n"
            hearing.cancel()
        while not told.empty():  # said just before the answer
            yield _news(told.get_nowait())
        try:
            yield _event("answer", working.result())
        except (Refused, Trouble) as error:
            yield _event("trouble", msgspec.json.encode(problem_of(error)))
    finally:
        working.cancel()


def _news(news: Any) -> bytes:
    return _event("progress" if isinstance(news, Progress) else "found", msgspec.json.encode(news))


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data.replace(b"\n", b" ") + b"\n\n"
