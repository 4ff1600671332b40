"""Lets an agent of LangChain call the relay."""

import asyncio
import json
import os

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

entry = json.loads(os.environ["ENTRY"])


async def main():
    client = MultiServerMCPClient({"colab": {"transport": "stdio", **entry}})
    async with client.session("colab") as session:
        agent = create_agent("openai:gpt-5.5", await load_mcp_tools(session))
        await agent.ainvoke({"messages": [("user", "Print 6 * 7 on the VM.")]})


asyncio.run(main())
