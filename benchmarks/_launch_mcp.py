"""Does every tool of the MCP server answer the protocol's own client, over stdin and stdout?"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from shardwise.show.cli._agent_tools import tools
from shardwise.show.cli.mcp import NOT_INSTALLED, is_installed

ROOT = Path(__file__).resolve().parents[1]
SLURM = "SwitchName=leaf1 Nodes=n[1-4]\nSwitchName=leaf2 Nodes=n[5-8]\nSwitchName=spine Switches=leaf[1-2]\n"
FSDP = {"model": "llama-3-8b", "on": "8xh100", "options": {"zero": 3}}
QUESTIONS: dict[str, dict[str, Any]] = {
    "plan": {"model": "llama-3-8b", "on": "8xh100"}, "estimate": FSDP,
    "size": {"model": "llama-3-8b", "on": "8xh100", "options": {"tokens": "1B"}},
    "check": {"files": ["ds.json"], "on": "8xh100", "options": {"model": "llama-3-8b"}},
    "why": {"files": ["train.log"]}, "export": {**FSDP, "options": {"zero": 3, "to": "torchtitan"}},
    "place": {
        "model": "llama-3-8b", "on": "dgx-h100:32", "options": {"tp": 8, "topology": "topology.conf", "budget": 100},
    },
}  # fmt: skip
LOG = "".join(f"step: {n}  loss: 9.1  memory: 48.87GiB(51.44%)  tps: 7,000  mfu: 25.62%\n" for n in range(1, 20))


def mcp_tools_ok(folder: Path) -> tuple[int | None, str]:
    """(tools that answered, why not all of them); nothing where the package is missing."""
    if not is_installed():
        return None, NOT_INSTALLED
    (folder / "ds.json").write_text(
        json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}})
    )
    (folder / "topology.conf").write_text(SLURM)
    (folder / "train.log").write_text(LOG)
    return asyncio.run(_asked(folder))


async def _asked(folder: Path) -> tuple[int, str]:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    words = ["-m", "shardwise", "mcp", "--root", str(folder)]
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    started = StdioServerParameters(command=sys.executable, args=words, env={**os.environ, "PYTHONPATH": path})
    right, wrong = 0, []
    async with Client(started) as client:
        for tool in tools():
            answer = await client.call_tool(tool.verb, QUESTIONS[tool.verb])
            told = answer.structured_content or {}
            good = not answer.is_error and told.get("exit_code") in (0, 1) and told.get("answer")
            right += bool(good)
            if not good:
                wrong.append(f"{tool.verb}: {str(answer.content)[:200]}")
    return right, "; ".join(wrong)
