#!/usr/bin/env bash
# Does an MCP tool get every argument that a LangChain agent gives it?
#
# Packages: langchain-mcp-adapters 0.3.2, langchain-core 1.8.3, mcp 1.30.0
# Expected: A tool with the string arguments "runtime" and "machine" gets both: the adapter shows
#           both to the model.
# Seen:     The server gets "machine" alone, and uses its default for "runtime". Nothing is said:
#           "runtime" is the name under which LangChain passes a tool its own value.
#
# Exits with 0 while that is so.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langchain-mcp-adapters==0.3.2 langchain-core==1.8.3 mcp==1.30.0
cat >"$folder/server.py" <<'PYTHON'
from mcp.server.fastmcp import FastMCP

server = FastMCP("machines", log_level="ERROR")


@server.tool()
def run(code: str, runtime: str = "default", machine: str = "default") -> str:
    """Says what arrived."""
    return f"runtime={runtime} machine={machine}"


server.run()
PYTHON
cat >"$folder/client.py" <<'PYTHON'
import asyncio
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient


async def main():
    server = {"command": sys.executable, "args": [sys.argv[1]], "transport": "stdio"}
    (tool,) = await MultiServerMCPClient({"machines": server}).get_tools()
    print("the model is shown:", *sorted(tool.args))
    (answer,) = await tool.ainvoke({"code": "1", "runtime": "gpu", "machine": "gpu"})
    print("the server got:", answer["text"])


asyncio.run(main())
PYTHON
seen=$("$folder/venv/bin/python" "$folder/client.py" "$folder/server.py")
printf '%s\n' "$seen"
[ "$seen" = "the model is shown: code machine runtime
the server got: runtime=default machine=gpu" ]
