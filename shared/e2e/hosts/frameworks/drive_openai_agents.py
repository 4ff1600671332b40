"""Lets an agent of OpenAI's Agents SDK call the relay."""

import asyncio
import json
import os

from agents import Agent, Runner
from agents.mcp import MCPServerStdio

entry = json.loads(os.environ["ENTRY"])


async def main():
    async with MCPServerStdio(params=entry) as server:
        agent = Agent(name="agent", model="gpt-5.5", mcp_servers=[server])
        await Runner.run(agent, "Print 6 * 7 on the VM.")


asyncio.run(main())
