"""Lets an agent of Haystack call the relay."""

import json
import os

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo

entry = json.loads(os.environ["ENTRY"])

toolset = MCPToolset(StdioServerInfo(**entry), eager_connect=True)
agent = Agent(chat_generator=OpenAIChatGenerator(model="gpt-5.5"), tools=toolset)
agent.run(messages=[ChatMessage.from_user("Print 6 * 7 on the VM.")])
toolset.close()
