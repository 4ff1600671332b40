// What every TypeScript client must be able to do with the relay. Each check prints one line:
// {"check": "...", "error": "..."}; no error means that it passed.
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';

const slow = "import time\nfor i in range(5):\n    print('line', i, flush=True)\n    time.sleep(0.5)";

export async function check(name, body) {
  let error;
  try {
    await body();
  } catch (e) {
    error = String(e?.message ?? e);
  }
  console.log(JSON.stringify({ check: name, error }));
}

// tap records the ids of sent requests and all received messages.
function tap(transport) {
  const seen = { sent: [], received: [] };
  const send = transport.send.bind(transport);
  transport.send = (message, ...rest) => {
    if (message.method && message.id !== undefined) seen.sent.push(message.id);
    return send(message, ...rest);
  };
  const receive = transport.onmessage;
  transport.onmessage = (message, ...rest) => {
    seen.received.push(message);
    receive(message, ...rest);
  };
  return seen;
}

// checks uses call(name, arguments, options), which hides how the SDKs differ.
export async function checks(client, transport, call) {
  const errors = [];
  client.onerror = (error) => errors.push(error.message);
  const seen = tap(transport);

  await check('list tools', async () => {
    const { tools } = await client.listTools();
    assert.ok(tools.length >= 19, `${tools.length} tools`);
  });
  await check('a call with progress', async () => {
    const messages = [];
    const result = await call('run_code_quick', { code: slow }, { onprogress: (p) => messages.push(p.message) });
    assert.equal(result.structuredContent.status, 'succeeded');
    assert.ok(messages.some((m) => m.startsWith('line')), `messages ${messages}`);
  });
  await check('silence after an abort', async () => {
    const controller = new AbortController();
    const options = { signal: controller.signal, onprogress: () => {} };
    const aborted = assert.rejects(call('run_code_quick', { code: slow }, options));
    await pause(1000);
    const id = seen.sent.at(-1);
    controller.abort();
    await aborted;
    const before = seen.received.length;
    // This run begins when the aborted call's has ended on the VM.
    const next = await call('run_code_quick', { code: 'i' });
    assert.equal(next.structuredContent.result, '4', 'the aborted call must not end its run');
    const late = seen.received.slice(before).filter((m) => m.id === id || m.params?.progressToken === id);
    assert.deepEqual(late, []);
  });
  await check('20 calls at once', async () => {
    const numbers = [...Array(20).keys()];
    const results = await Promise.all(numbers.map((n) => call('run_code_quick', { code: `${n}` })));
    assert.deepEqual(results.map((r) => r.structuredContent.result), numbers.map(String));
  });
  await check('a failing run', async () => {
    const result = await call('run_code_quick', { code: '1/0' });
    assert.ok(result.isError);
    assert.equal(result.structuredContent.success, false);
  });
  return () => check('no error reported', () => assert.deepEqual(errors, []));
}
