package main

// howMeasured explains the table.
const howMeasured = `
## How it is measured

Speeds are medians. A ratio compares medians of ways that were measured in turn, in a random order, in the same run. Compare ratios between machines and days, not times. p99 is the largest sample where n is below 100. A missed target is marked, and nothing fails.

- **The bare kernel** is the executor's own Jupyter client, connected to the kernel directly.
- **The old-style bridge** is what this project replaces: a Flask application (development server, threads) that executes code in its own process with ` + "`exec` and `eval`" + `, called by an MCP server in Python (FastMCP of mcp[cli]) with ` + "`requests`" + `, a new connection each call. It has no kernel, no queue, no deadline, no log, no signature. The same MCP client drives it and the relay.
- **A notebook** runs 1,000 cells of ` + "`1+1`" + `; the time of a cell is that of the whole divided by 1,000. The executor runs them by itself, as one job, whose steps a ticket of relay/jobs reads while it runs.
- **Distance** is a proxy that delays both directions by half the round trip. A new connection costs one more round trip, as TCP's handshake does; TLS would cost another.
- **Prints**: the code prints its clock, and the readers compare it with theirs. Without ` + "`flush=True`" + `, ipykernel sends output every 0.2 s.
- **Transfers** move one file of random bytes between two folders on one disk. Plain net/http copies it with io.Copy and verifies nothing. The executor's and the relay's SHA-256 of the whole are in the time.
- **The hour** is 20 quick calls, a silent run and a printing run of ten minutes each, five calls that list or inspect, and a download of 10 MB. The runs are followed for 90 s and multiplied.
- **Cost of many**: each call alternates between two executors.
`
