"""Lets an agent of CrewAI call the relay."""

import json
import os

from crewai import Agent
from crewai_tools import MCPServerAdapter
from mcp import StdioServerParameters

entry = json.loads(os.environ["ENTRY"])

with MCPServerAdapter(StdioServerParameters(**entry)) as tools:
    agent = Agent(role="Analyst", goal="Answer.", backstory="-", tools=tools, llm="openai/gpt-5.5")
    agent.kickoff("Print 6 * 7 on the VM.")
