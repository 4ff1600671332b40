package main

// howMeasured explains the table.
const howMeasured = `
## How it is measured

Speeds are medians. A ratio compares medians of ways that were measured in turn, in a random order, in the same run. Compare ratios between machines and days, not times. p99 is the largest sample where n is below 100. A missed target is marked, and nothing fails.

- **The bare kernel** is the executor's own Jupyter client, connected to the kernel directly.
- **Distance** is a proxy that delays both directions by half the round trip. A new connection costs one more round trip, as TCP's handshake does; TLS would cost another.
- **Transfers** move one file of random bytes between two folders on one disk. Plain net/http copies it with io.Copy and verifies nothing. The executor's and the relay's SHA-256 of the whole are in the time.
`
