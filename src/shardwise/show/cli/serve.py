"""`shardwise serve`: the page in a browser, answered by the verbs of this machine; or written as files."""

from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.serve import ViewRow, ViewsAnswer
from shardwise.interpreter import python_command
from shardwise.show.cli._groups import OUTPUT
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered
from shardwise.show.page.views import table

NOT_INSTALLED = "starlette and uvicorn are not installed; write pip install 'shardwise[page]'"
SECONDS = 60.0
LONGEST_WAIT = 3600.0
PORT = 8470
SHORTEST_TOKEN = 8


def serve(
    *,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port to listen on; 0: a free one.")] = PORT,
    token: Annotated[
        str | None, Parameter(help="Only who has it may ask: 'new' makes one. Needed beyond this machine.")
    ] = None,
    seconds: Annotated[float, Parameter(help="Longest time of one answer.")] = SECONDS,
    watch: Annotated[Path | None, Parameter(help="A run for the view Run: a folder of records, or a log.")] = None,
    export: Annotated[
        Path | None, Parameter(group=OUTPUT, help="Write the page as files into this folder, and no server.")
    ] = None,
    case: Annotated[
        list[str] | None,
        Parameter(group=OUTPUT, negative=(), help="With --export: a link copied from the page; may repeat."),
    ] = None,
    overwrite: Annotated[bool, Parameter(group=OUTPUT, negative=(), help="Replace a page of shardwise there.")] = False,
    list_views: Annotated[bool, Parameter(name="--list", negative=(), help="List the views and exit.")] = False,
    json: Json = False,
) -> int:
    """The page: plan, change and look at a training run in a browser, and learn it from the beginning."""
    _check(host, port, token, seconds)
    if case and export is None:
        raise ValueError(f"case: {case[0]!r} is for pages that are written; write --export FOLDER with it")
    if watch is not None and not watch.exists():
        raise ValueError(f"watch: there is no {str(watch)!r}; write a folder of records or a log")
    if list_views:
        return answered(_views(), json)
    if export is not None:
        from shardwise.show.cli._page_files import write_page

        return answered(write_page(export, case or [], overwrite=overwrite), json)
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise ValueError(f"serve: {NOT_INSTALLED}")
    from shardwise.show.cli._page_server import serve_page

    serve_page(host, port, token or "", seconds, watch, json=json)
    return 0


def _views() -> ViewsAnswer:
    asks = table()["asks"]
    return ViewsAnswer(views=[
        ViewRow(view=name, asks=[asks[ask]["verb"] for ask in view["asks"]], link=f"#/{name}")
        for name, view in table()["views"].items()
    ])  # fmt: skip


def _check(host: str, port: int, token: str | None, seconds: float) -> None:
    if not 0 <= port <= 65_535:
        raise ValueError(f"port: {port} is out of range; write 0 (a free one) to 65535")
    if not 0 < seconds <= LONGEST_WAIT:
        raise ValueError(f"seconds: {seconds:g} is out of range; write more than 0 and at most {LONGEST_WAIT:g}")
    if token is not None and token != "new" and (len(token) < SHORTEST_TOKEN or not token.isascii() or " " in token):
        raise ValueError(
            f"token: it is too short or not plain; write {SHORTEST_TOKEN} letters and digits or more, or new"
        )
    try:
        loopback = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback and token is None:
        raise ValueError(f"host: {host!r} can be reached from other machines; write --token new with it, or 127.0.0.1")


def worker_command() -> list[str]:
    return python_command("shardwise.show.cli._page_worker")
