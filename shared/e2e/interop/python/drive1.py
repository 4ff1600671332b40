"""The official Python SDK, version 1: drive1.py RELAY."""

import os
import sys

import anyio
from checks import Tap, check, checks
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client


async def main(relay):
    errors = []

    async def handle(message):
        if isinstance(message, Exception):
            errors.append(str(message))

    server = StdioServerParameters(command=relay, args=["serve"], env=dict(os.environ))
    with open(os.devnull, "w") as quiet:
        async with stdio_client(server, errlog=quiet) as (read, write):
            tap = Tap(read)
            async with ClientSession(tap, write, message_handler=handle) as session:

                async def abort(arguments):
                    request_id = session._request_id
                    with anyio.move_on_after(1):
                        await session.call_tool("run_code_quick", arguments)
                    # This version does not tell the server by itself.
                    params = types.CancelledNotificationParams(requestId=request_id)
                    note = types.CancelledNotification(params=params)
                    await session.send_notification(types.ClientNotification(note))
                    return request_id

                with check("connect"):
                    await session.initialize()
                await checks(session, tap, abort)
                with check("no error reported"):
                    assert not errors, errors


anyio.run(main, sys.argv[1])
