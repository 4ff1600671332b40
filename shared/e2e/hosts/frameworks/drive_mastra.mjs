// Lets an agent of Mastra call the relay.
import { Agent } from '@mastra/core/agent';
import { MCPClient } from '@mastra/mcp';
import { openai } from '@ai-sdk/openai';

const entry = JSON.parse(process.env.ENTRY);

const client = new MCPClient({ servers: { colab: entry } });
const [model, tools] = [openai.chat('gpt-5.5'), await client.listTools()];
const agent = new Agent({ id: 'agent', name: 'agent', instructions: 'Use the tools.', model, tools });
await agent.generate('Print 6 * 7 on the VM.', { maxSteps: 20 });
await client.disconnect();
