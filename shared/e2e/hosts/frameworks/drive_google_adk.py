"""Lets an agent of Google's ADK call the relay."""

import asyncio
import json
import os

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from mcp import StdioServerParameters

entry = json.loads(os.environ["ENTRY"])


async def main():
    parameters = StdioConnectionParams(server_params=StdioServerParameters(**entry))
    toolset = McpToolset(connection_params=parameters)
    agent = LlmAgent(name="agent", model="gemini-2.5-pro", tools=[toolset])
    await InMemoryRunner(agent=agent).run_debug("Print 6 * 7 on the VM.")
    await toolset.close()


asyncio.run(main())
