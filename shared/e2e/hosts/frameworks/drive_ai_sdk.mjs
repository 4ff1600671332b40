// Lets an agent of the AI SDK call the relay.
import { createMCPClient } from '@ai-sdk/mcp';
import { Experimental_StdioMCPTransport } from '@ai-sdk/mcp/mcp-stdio';
import { openai } from '@ai-sdk/openai';
import { generateText, isStepCount } from 'ai';

const entry = JSON.parse(process.env.ENTRY);

const client = await createMCPClient({ transport: new Experimental_StdioMCPTransport(entry) });
const [model, tools] = [openai.chat('gpt-5.5'), await client.tools()];
await generateText({ model, tools, stopWhen: isStepCount(20), prompt: 'Print 6 * 7 on the VM.' });
await client.close();
