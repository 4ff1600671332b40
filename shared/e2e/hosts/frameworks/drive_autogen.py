"""Lets an agent of AutoGen call the relay."""

import asyncio
import json
import os

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

entry = json.loads(os.environ["ENTRY"])


async def main():
    server = StdioServerParams(**entry, read_timeout_seconds=60)
    model = OpenAIChatCompletionClient(model="gpt-4.1")
    async with McpWorkbench(server) as workbench:
        agent = AssistantAgent("agent", model, workbench=workbench, max_tool_iterations=20)
        await agent.run(task="Print 6 * 7 on the VM.")


asyncio.run(main())
