"""Print, as JSON, this interpreter and the distributions it finds, importing none of them.

paths are the folders that installing or removing one would change.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import distributions

MAX_PACKAGES = 5000

# Running from standard input puts the current folder, an empty one, first.
sys.path = [path for path in sys.path if path]
packages: dict[str, str] = {}
for distribution in distributions():
    name = distribution.metadata["Name"]
    if name and len(packages) < MAX_PACKAGES:
        packages.setdefault(name, distribution.version or "")

versions = {name.lower(): version for name, version in packages.items()}
json.dump(
    {
        "python": {
            "version": platform.python_version(),
            "executable": sys.executable,
            "ipykernel": versions.get("ipykernel", ""),
            "ipython": versions.get("ipython", ""),
        },
        "packages": packages,
        "paths": [path for path in sys.path if os.path.isdir(path)],
    },
    sys.stdout,
)
