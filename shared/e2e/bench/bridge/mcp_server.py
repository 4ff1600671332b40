"""The laptop's side of an old-style bridge, which make bench compares with: an MCP server on
stdio whose tool makes a new connection to flask_app.py for each call.

The environment variables BRIDGE_URL and BRIDGE_TOKEN name flask_app.py and its token.
"""

import os

import requests
from mcp.server.fastmcp import FastMCP

server = FastMCP("bridge")


@server.tool()
def run_code_quick(code: str) -> dict:
    """Runs Python code on the VM."""
    answer = requests.post(
        os.environ["BRIDGE_URL"] + "/execute",
        json={"code": code},
        headers={"X-Auth-Token": os.environ["BRIDGE_TOKEN"]},
        timeout=120,
    )
    answer.raise_for_status()
    return answer.json()


server.run()
