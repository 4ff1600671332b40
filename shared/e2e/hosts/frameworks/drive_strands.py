"""Lets an agent of Strands Agents call the relay."""

import json
import os

from mcp import StdioServerParameters, stdio_client
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient

entry = json.loads(os.environ["ENTRY"])

client = MCPClient(lambda: stdio_client(StdioServerParameters(**entry)))
agent = Agent(model=OpenAIModel(model_id="gpt-5.5"), tools=[client])
agent("Print 6 * 7 on the VM.")
