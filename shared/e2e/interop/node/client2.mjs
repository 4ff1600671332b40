// The official TypeScript client, version 2: client2.mjs ERA RELAY, where ERA is legacy, auto
// or a version.
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import assert from 'node:assert/strict';
import { check, checks } from './checks.mjs';

const [era, relay] = process.argv.slice(2);
const mode = era === 'legacy' || era === 'auto' ? era : { pin: era };
const client = new Client({ name: 'interop', version: '1' }, { versionNegotiation: { mode } });
const transport = new StdioClientTransport({ command: relay, args: ['serve'], env: process.env, stderr: 'ignore' });
await check('connect', () => client.connect(transport));

const noErrors = await checks(client, transport, (name, args, options) =>
  client.callTool({ name, arguments: args }, options));
if (era !== 'legacy') {
  await check('listen', async () => {
    const subscription = await client.listen({ toolsListChanged: true });
    assert.deepEqual(subscription.honoredFilter, {});
    assert.equal(await subscription.closed, 'graceful');
  });
}
await noErrors();
await check('close', () => client.close());
