"""Lets an agent of Pydantic AI call the relay."""

import asyncio
import json
import os

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset, StdioTransport

entry = json.loads(os.environ["ENTRY"])


async def main():
    toolset = MCPToolset(StdioTransport(**entry))
    agent = Agent("openai:gpt-5.5", toolsets=[toolset])
    async with agent:
        await agent.run("Print 6 * 7 on the VM.")


asyncio.run(main())
