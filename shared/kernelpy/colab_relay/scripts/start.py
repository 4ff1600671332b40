"""Start an ipykernel in which files of the working directory shadow no installed module.

The first argument is the working directory, the rest is for ipykernel. Python starts
with this script's folder first in sys.path. The script removes it, and adds the working
directory only after everything that the kernel needs is imported. IPython puts it after the
standard library, as in any notebook.
"""

import contextlib
import os
import sys
import tempfile

here = os.path.dirname(os.path.realpath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != here]
# Before any other import: multiprocessing remembers the directory it was imported in.
os.chdir(sys.argv.pop(1))
if "COLAB_RELAY_PYTHONPATH" in os.environ:  # for the programs that the user's code starts
    os.environ["PYTHONPATH"] = os.environ.pop("COLAB_RELAY_PYTHONPATH")

from ipykernel.kernelapp import IPKernelApp  # noqa: E402
from IPython.core.events import EventManager  # noqa: E402


class KernelApp(IPKernelApp):
    """An ipykernel that adds the working directory to sys.path late."""

    def init_path(self) -> None:
        """Do not add it while the kernel's own modules are imported."""

    def init_code(self) -> None:
        """Add it before the first user code runs, which is that of an IPython configuration."""
        with contextlib.suppress(ImportError):
            import psutil  # noqa: F401 - ipykernel 7 imports it when it shuts down

        super().init_path()
        keep_streams(self.shell.events)
        super().init_code()


def keep_streams(events: EventManager) -> None:
    """Set sys.stdout and sys.stderr back after code that leaves one that cannot be flushed.

    The kernel flushes both after each run. If that fails, it sends no end of the run.
    """
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}

    def check() -> None:
        for name, stream in streams.items():
            try:
                getattr(sys, name).flush()
            except Exception as problem:  # noqa: BLE001 - of any object that code may set
                setattr(sys, name, stream)
                why = f"flushing the object in its place raised {type(problem).__name__}"
                print(f"colab-relay: sys.{name} was reset: {why}", file=streams["stderr"])

    events.register("post_execute", check)


def choose_temp_folder() -> None:
    """Use a folder in memory if all disks are full. IPython needs the name of one to run code."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        tempfile.tempdir = "/dev/shm"


choose_temp_folder()
KernelApp.launch_instance()
