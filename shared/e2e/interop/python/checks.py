"""What both Python SDKs must be able to do with the relay: drive1.py and drive2.py.

Each check prints one line: {"check": "...", "error": "..."}; no error means that it passed.
"""

import json
from contextlib import contextmanager

import anyio

SLOW = "import time\nfor i in range(5):\n    print('line', i, flush=True)\n    time.sleep(0.5)"


@contextmanager
def check(name):
    error = None
    try:
        yield
    except Exception as e:
        error = f"{type(e).__name__}: {e}"
    print(json.dumps({"check": name, "error": error}), flush=True)


class Tap:
    """Stands between the client and its transport and keeps the messages of the relay."""

    def __init__(self, stream):
        self.stream = stream
        self.ids = []

    def __getattr__(self, name):
        return getattr(self.stream, name)

    async def __aenter__(self):
        await self.stream.__aenter__()
        return self

    async def __aexit__(self, *args):
        return await self.stream.__aexit__(*args)

    def __aiter__(self):
        return self

    async def __anext__(self):
        message = await self.stream.__anext__()
        self.note(message)
        return message

    async def receive(self):
        message = await self.stream.receive()
        self.note(message)
        return message

    def note(self, message):
        if not isinstance(message, Exception):
            inner = getattr(message.message, "root", message.message)
            self.ids.append(getattr(inner, "id", None))


def fields(result):
    """The structured content, which the two SDKs name differently."""
    return (
        result.structuredContent
        if hasattr(result, "structuredContent")
        else result.structured_content
    )


def is_error(result):
    return result.isError if hasattr(result, "isError") else result.is_error


async def checks(session, tap, abort):
    """abort(arguments) begins run_code_quick, gives it up after a second and returns its id."""
    with check("list tools"):
        tools = (await session.list_tools()).tools
        assert len(tools) >= 19, f"{len(tools)} tools"

    with check("a call with progress"):
        messages = []

        async def progress(done, total, message):
            messages.append(message)

        result = await session.call_tool(
            "run_code_quick", {"code": SLOW}, progress_callback=progress
        )
        assert fields(result)["status"] == "succeeded"
        assert any(m.startswith("line") for m in messages), messages

    with check("silence after an abort"):
        request_id = await abort({"code": SLOW})
        assert request_id not in tap.ids
        # This run begins when the aborted call's has ended on the VM.
        result = await session.call_tool("run_code_quick", {"code": "i"})
        assert fields(result)["result"] == "4", "the aborted call must not end its run"
        assert request_id not in tap.ids

    with check("20 calls at once"):
        results = {}

        async def call(n):
            answer = await session.call_tool("run_code_quick", {"code": str(n)})
            results[n] = fields(answer)["result"]

        async with anyio.create_task_group() as group:
            for n in range(20):
                group.start_soon(call, n)
        assert results == {n: str(n) for n in range(20)}, results

    with check("a failing run"):
        result = await session.call_tool("run_code_quick", {"code": "1/0"})
        assert is_error(result) and fields(result)["success"] is False
