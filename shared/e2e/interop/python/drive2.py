"""The official Python SDK, version 2: drive2.py ERA RELAY, where ERA is a mode or a version."""

import os
import sys
from contextlib import asynccontextmanager

import anyio
from checks import Tap, check, checks
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(era, relay):
    errors, taps = [], []

    async def handle(message):
        if isinstance(message, Exception):
            errors.append(str(message))

    @asynccontextmanager
    async def transport():
        server = StdioServerParameters(command=relay, args=["serve"], env=dict(os.environ))
        with open(os.devnull, "w") as quiet:
            async with stdio_client(server, errlog=quiet) as (read, write):
                taps.append(Tap(read))
                yield taps[-1], write

    async with Client(transport(), mode=era, message_handler=handle) as client:
        with check("connect"):
            assert era not in ("legacy", "auto") or client.server_capabilities.tools

        async def abort(arguments):
            before = max((i for i in taps[-1].ids if isinstance(i, int)), default=0)
            with anyio.move_on_after(1):
                await client.call_tool("run_code_quick", arguments)
            return before + 1

        await checks(client, taps[-1], abort)
        if era != "legacy":
            with check("listen"):
                async with client.listen(tools_list_changed=True) as subscription:
                    assert not subscription.honored.tools_list_changed
                    async for event in subscription:
                        raise AssertionError(f"{event}: nothing was subscribed")
        with check("no error reported"):
            assert not errors, errors


anyio.run(main, sys.argv[1], sys.argv[2])
