"""Print, as JSON, the versions that a kernel of this interpreter would have."""

import json
import platform
import sys

import ipykernel
import IPython

json.dump(
    {
        "executable": sys.executable,
        "version": platform.python_version(),
        "ipykernel": ipykernel.__version__,
        "ipython": IPython.__version__,
    },
    sys.stdout,
)
