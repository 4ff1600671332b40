"""Print, as JSON, the versions that a kernel of this interpreter would have.

It imports neither, because importing ipykernel takes longer than everything else
that happens before the kernel is ready.
"""

import importlib.metadata
import importlib.util
import json
import platform
import sys

for module in ("ipykernel", "IPython"):
    if importlib.util.find_spec(module) is None:
        sys.exit(f"ModuleNotFoundError: No module named {module!r}")

json.dump(
    {
        "executable": sys.executable,
        "version": platform.python_version(),
        "ipykernel": importlib.metadata.version("ipykernel"),
        "ipython": importlib.metadata.version("ipython"),
    },
    sys.stdout,
)
