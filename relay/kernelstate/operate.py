"""The operations that the relay asks for. Each answers with one display of our own MIME type,
which no front-end shows."""

import os
import shutil
import sys

from colab_relay_state_keep import bring_back, keep
from colab_relay_state_progress import Ticker
from colab_relay_state_restore import restore
from colab_relay_state_safe import Damaged, python_version, reason, text
from colab_relay_state_save import new_folder, remove, remove_left_behind, save
from IPython.core.getipython import get_ipython

MIME = "application/vnd.colab-relay.state+json"


def do_save(shell):
    with Ticker(shell.display_pub.publish) as ticker:
        return save(shell, ticker)


def do_prepare(shell):
    """A folder for the upload of a state to restore."""
    remove_left_behind()
    folder = new_folder()
    return {
        "path": text(os.path.join(folder, "data.state"), 4096),
        "free": shutil.disk_usage(folder).free,
        "python": python_version(),
    }


def do_restore(shell, path, size, digest):
    try:
        with Ticker(shell.display_pub.publish) as ticker:
            return restore(shell, path, size, digest, ticker)
    except Damaged as e:
        return {"damaged": reason(e, "it was read")}
    finally:
        remove(path)


def do_remove(shell, path):
    remove(path)
    return {}


OPERATIONS = {
    "save": do_save,
    "prepare": do_prepare,
    "restore": do_restore,
    "remove": do_remove,
    "keep": keep,
    "bring back": bring_back,
}


def answer(question):
    operation, *arguments = question
    shell = get_ipython()
    report = OPERATIONS[operation](shell, *arguments)
    sys.stdout.flush()
    shell.display_pub.publish({MIME: report})
