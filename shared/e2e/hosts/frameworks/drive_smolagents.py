"""Lets an agent of smolagents call the relay."""

import json
import os

from mcp import StdioServerParameters
from smolagents import MCPClient, OpenAIModel, ToolCallingAgent

entry = json.loads(os.environ["ENTRY"])

with MCPClient(StdioServerParameters(**entry), structured_output=False) as tools:
    agent = ToolCallingAgent(tools, OpenAIModel("gpt-5.5"))
    agent.run("Print 6 * 7 on the VM.")
