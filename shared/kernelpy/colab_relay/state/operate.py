"""The operations on kernel states that the relay calls. Each returns its report as plain values."""

from __future__ import annotations

import os
from typing import Any

from IPython.core.getipython import get_ipython

from ..safe import short
from . import rebuild
from . import restore as restoring
from . import save as saving
from .progress import Ticker
from .reasons import Damaged, reason


def save() -> dict[str, Any]:
    """Writes the user's variables to a file on the VM."""
    shell = get_ipython()
    with rebuild.importable(), Ticker(shell.display_pub.publish) as ticker:
        return saving.save(shell, ticker)


def prepare() -> dict[str, Any]:
    """Makes a folder for the upload of a state to restore."""
    saving.remove_old_folders()
    return {"path": short(os.path.join(saving.new_folder(), "data.state"), 4096)}


def restore(path: str, size: int, digest: str) -> dict[str, Any]:
    """Loads a state file into the user's namespace and deletes the file."""
    shell = get_ipython()
    try:
        with rebuild.importable(), Ticker(shell.display_pub.publish) as ticker:
            return restoring.restore(shell, path, size, digest, ticker)
    except Damaged as e:
        return {"damaged": reason(e, "it was read")}
    finally:
        saving.remove(path)


def remove(path: str) -> dict[str, Any]:
    """Deletes the file of a state and its folder."""
    saving.remove(path)
    return {}
