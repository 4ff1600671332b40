"""Lets an agent of mcp-use call the relay."""

import asyncio
import json
import os

from langchain_openai import ChatOpenAI
from mcp_use import MCPAgent, MCPClient

entry = json.loads(os.environ["ENTRY"])


async def main():
    client = MCPClient.from_dict({"mcpServers": {"colab": entry}})
    agent = MCPAgent(llm=ChatOpenAI(model="gpt-5.5"), client=client, max_steps=20)
    await agent.run("Print 6 * 7 on the VM.")
    await client.close_all_sessions()


asyncio.run(main())
