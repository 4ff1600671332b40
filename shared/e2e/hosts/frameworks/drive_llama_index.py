"""Lets an agent of LlamaIndex call the relay."""

import asyncio
import json
import os

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

entry = json.loads(os.environ["ENTRY"])


async def main():
    client = BasicMCPClient(entry["command"], entry["args"], entry["env"])
    tools = await McpToolSpec(client).to_tool_list_async()
    llm = OpenAILike(model="gpt-5.5", is_chat_model=True, is_function_calling_model=True)
    agent = FunctionAgent(tools=tools, llm=llm, streaming=False)
    await agent.run("Print 6 * 7 on the VM.")


asyncio.run(main())
