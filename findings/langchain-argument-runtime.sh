#!/usr/bin/env bash
# Does a tool get all arguments that the model of a LangChain agent gives it?
#
# Packages: langchain-mcp-adapters 0.3.2 with langchain 1.5.2 and mcp 1.30.0
# Expected: The server gets every argument that its schema has, or the call fails.
# Seen:     One called runtime is dropped without a word: the model sees it in the schema and gives it, the
#           server gets its default. One called runtime_name arrives.
#
# Exits with 0 while that is so.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check langchain-mcp-adapters==0.3.2 langchain==1.5.2 mcp==1.30.0
cat >"$folder/server.py" <<'PYTHON'
from mcp.server.fastmcp import FastMCP

server = FastMCP("server")


@server.tool()
def run(runtime: str = "default", runtime_name: str = "default") -> str:
    return f"runtime={runtime} runtime_name={runtime_name}"


server.run()
PYTHON
"$folder/env/bin/python" - "$folder/server.py" <<'PYTHON'
import asyncio
import sys

from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_mcp_adapters.client import MultiServerMCPClient


async def main():
    entry = {"transport": "stdio", "command": sys.executable, "args": [sys.argv[1]]}
    (tool,) = await MultiServerMCPClient({"server": entry}).get_tools()
    offered = list(convert_to_openai_tool(tool)["function"]["parameters"]["properties"])
    answer = await tool.ainvoke({"runtime": "gpu", "runtime_name": "gpu"})
    print(f"the model is offered {offered}; the server got {answer[0]['text']}")
    assert offered == ["runtime", "runtime_name"]
    assert answer[0]["text"] == "runtime=default runtime_name=gpu"


asyncio.run(main())
PYTHON
