"""Drive. The request to the page is the real one; the mounted folder is the test's."""

import os

from google.colab import _message


def mount(mountpoint, force_remount=False, timeout_ms=120000, readonly=False):
    _message.blocking_request(
        "request_auth", request={"authType": "dfs_ephemeral"}, timeout_sec=120
    )
    os.symlink(os.environ["PAGE_DRIVE"], mountpoint)
    print(f"Mounted at {mountpoint}")
