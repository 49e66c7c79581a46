"""`shardwise mcp`: a server of the Model Context Protocol on stdin and stdout, with the verbs agents need as tools."""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.answers.mcp import ToolRow, ToolsAnswer
from shardwise.show.cli._agent_tools import SECONDS, AgentTool, Value, answered, asked_of, tools
from shardwise.show.cli._option_schema import verb_schema
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered as print_answer

INSTRUCTIONS = (
    "Predicts how to split the training of a model over GPUs: step time, memory, cost. Every answer has the command "
    "that repeats it, error_range (80 % of measured steps lie between step_s times 1 + the first and 1 + the second) "
    "and what was assumed; a prediction is not a measurement. Options are those of the command line, by name, such as "
    "{'tp': 8, 'zero': 1}. Files lie in the server's folder."
)
NOT_INSTALLED = "the package mcp, 2 or later, is not installed; write pip install 'shardwise[mcp]'"
LONGEST_WAIT = 3600.0
MOST_THREADS = 2
"""questions answered at once"""


def mcp(
    *,
    root: Annotated[Path, Parameter(help="Folder that file arguments stay inside.")] = Path("."),
    seconds: Annotated[float, Parameter(help="Longest time of one answer.")] = SECONDS,
    list_tools: Annotated[bool, Parameter(name="--list", negative=(), help="List the tools and exit.")] = False,
    json: Json = False,
) -> int:
    """Tools for agents and editors: plan, estimate, size, check, export, place, ... over stdin and stdout."""
    if not root.is_dir():
        raise ValueError(f"root: there is no folder {str(root)!r}; write one that is there")
    if not 0 < seconds <= LONGEST_WAIT:
        raise ValueError(f"seconds: {seconds:g} is out of range; write more than 0 and at most {LONGEST_WAIT:g}")
    if list_tools or json:
        rows = [ToolRow(name=tool.called, asks=tool.asks, summary=tool.summary) for tool in tools()]
        return print_answer(ToolsAnswer(tools=rows, seconds=seconds), json)
    if not is_installed():
        raise ValueError(f"mcp: {NOT_INSTALLED}")
    if not all(hasattr(stream, "buffer") for stream in (sys.stdin, sys.stdout)):
        raise ValueError("mcp: stdin and stdout are not byte streams; let an MCP client start it")
    agent_server(root.resolve(), seconds).run("stdio")
    return 0


def is_installed() -> bool:
    """Release 1 has other names, and any folder called mcp would count as a package."""
    try:
        return find_spec("mcp.server.mcpserver") is not None
    except (ImportError, ValueError):
        return False


def agent_server(root: Path, seconds: float = SECONDS) -> Any:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.tools import Tool

    made = []
    for tool in tools():
        each = Tool.from_function(
            _function(tool, root, seconds), tool.called, description=tool.summary, structured_output=True
        )
        # an argument that is none is refused, not dropped
        each.fn_metadata.arg_model.model_config["extra"] = "forbid"
        each.fn_metadata.arg_model.model_rebuild(force=True)
        each.parameters["additionalProperties"] = False
        made.append(each)
    return MCPServer("shardwise", instructions=INSTRUCTIONS, log_level="ERROR", tools=made)


def _function(tool: AgentTool, root: Path, seconds: float) -> Callable[..., Any]:
    """With the arguments its schema is made of. Answers are waited for beside the server, which stays awake."""
    import anyio
    from mcp.server.mcpserver.exceptions import ToolError
    from pydantic import Field

    limiter = anyio.CapacityLimiter(MOST_THREADS)
    known = Field(default=None, json_schema_extra={"properties": verb_schema(tool), "additionalProperties": False})

    async def answer(first: list[str], on: str, options: dict[str, Value] | None) -> dict[str, Any]:
        try:
            asked = asked_of(tool, first, on, options or {}, root)
            found: dict[str, Any] = await anyio.to_thread.run_sync(
                lambda: answered(asked, root, seconds), limiter=limiter
            )
        except ValueError as error:
            raise ToolError(" ".join(str(error).split())) from None
        return found

    async def of_model(model: str, on: str = "", options: dict[str, Value] | None = None) -> dict[str, Any]:
        return await answer([model], on, options)

    async def of_files(files: list[str], on: str = "", options: dict[str, Value] | None = None) -> dict[str, Any]:
        return await answer(files, on, options)

    async def of_catalog() -> dict[str, Any]:
        return await answer([], "", None)

    if tool.asks == "nothing":
        return of_catalog
    chosen = of_model if tool.asks == "model" else of_files
    chosen.__annotations__["options"] = Annotated[dict[str, Value] | None, known]
    return chosen
