// The official TypeScript SDK, version 1: client1.mjs RELAY.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { check, checks } from './checks.mjs';

const [relay] = process.argv.slice(2);
const client = new Client({ name: 'interop', version: '1' });
const transport = new StdioClientTransport({ command: relay, args: ['serve'], env: process.env, stderr: 'ignore' });
await check('connect', () => client.connect(transport));
const noErrors = await checks(client, transport, (name, args, options) =>
  client.callTool({ name, arguments: args }, undefined, options));
await noErrors();
await check('close', () => client.close());
