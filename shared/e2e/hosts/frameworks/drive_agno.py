"""Lets an agent of Agno call the relay."""

import asyncio
import json
import os

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.tools.mcp import MCPTools
from mcp import StdioServerParameters

entry = json.loads(os.environ["ENTRY"])


async def main():
    async with MCPTools(server_params=StdioServerParameters(**entry)) as tools:
        agent = Agent(model=OpenAIChat(id="gpt-5.5"), tools=[tools])
        await agent.arun("Print 6 * 7 on the VM.")


asyncio.run(main())
