"""Runs a program that lies on the laptop as `python FILE` would, but in the user's namespace, so
that its variables stay. Tracebacks are Python's own, with the frames of the program only.
"""

from __future__ import annotations

import base64
import contextlib
import linecache
import os
import posixpath
import sys
import traceback
import zlib
from typing import Any, Iterator

from IPython.core.getipython import get_ipython

from .anew import forget_changed, say
from .ending import exit_text, show
from .imported import working_folder

ABSENT = object()


def run(path: str, packed: str, arguments: list[str]) -> None:
    """Runs the program. path is how the person named it, packed its source as base64 of zlib.

    sys.exit() and sys.exit(0) end it like its last line. Everything else that it raises is raised
    here too; only the traceback that IPython shows is another one."""
    source = zlib.decompress(base64.b64decode(packed)).decode()
    shell = get_ipython()
    with program(shell.user_ns, path, source, arguments), own_event_loop():
        try:
            code = compile(source, path, "exec", dont_inherit=True)
            import_anew()
            exec(code, shell.user_ns)
            return
        except SystemExit as error:
            raised: BaseException = error
            lines = exit_text(error)
            if not lines:
                raised = SystemExit(status_of(error.code))
                if raised.code == 0:
                    return
        except BaseException as error:
            raised = error
            lines = shown(error)
    show(shell, raised, lines)
    raise raised


def status_of(code: object) -> int:
    """The exit status of a Python that gets the number or None. C has 64 bits for the number."""
    number = int(code) if isinstance(code, int) else 0
    return number & 0xFF if -(2**63) <= number < 2**63 else 0xFF


def import_anew() -> None:
    """Has the code that runs next get modules as they are in their files now."""
    try:
        forget_changed()
    except Exception as problem:  # it runs all the same
        say(f"changed modules were not looked for: {type(problem).__name__}")


@contextlib.contextmanager
def program(names: dict[str, Any], path: str, source: str, arguments: list[str]) -> Iterator[None]:
    """What a program finds around it: its arguments, its own name and file, its lines of source,
    and its folder, which is first where Python looks for modules.

    The file does not exist on the VM. Its folder is the working directory, because that is where
    `colab-relay put` puts files."""
    folder = working_folder()
    file = os.path.join(folder, posixpath.basename(path.replace("\\", "/")))
    lines = source.splitlines(True)
    for name in (path, file):  # the frames have path; inspect looks for __file__
        linecache.cache[name] = (len(source), None, lines, name)
    own = {"__name__": "__main__", "__file__": file, "__doc__": None}
    before = {name: names.get(name, ABSENT) for name in own}
    before_arguments = sys.argv
    names.update(own)
    sys.argv = [path, *arguments]
    added = [folder] if folder else []
    sys.path[:0] = added
    try:
        yield
    finally:
        sys.argv = before_arguments
        with contextlib.suppress(Exception):  # the program may have changed it
            for entry in added:
                sys.path.remove(entry)
        for name, value in before.items():
            if value is ABSENT:
                names.pop(name, None)
            else:
                names[name] = value


@contextlib.contextmanager
def own_event_loop() -> Iterator[None]:
    """Makes asyncio.run possible, which refuses to start while another loop runs in this thread,
    as the kernel's does."""
    import asyncio
    from asyncio import events, tasks

    kernels = events._get_running_loop()
    if kernels is None:
        yield
        return
    task = tasks.current_task(kernels)
    if task is not None:
        tasks._leave_task(kernels, task)
    events._set_running_loop(None)
    programs = asyncio.new_event_loop()
    asyncio.set_event_loop(programs)
    try:
        yield
    finally:
        programs.close()
        asyncio.set_event_loop(kernels)
        events._set_running_loop(kernels)
        if task is not None:
            tasks._enter_task(kernels, task)


def shown(error: BaseException) -> list[str]:
    """traceback_of, or less after a program that changed linecache or the like."""
    try:
        return traceback_of(error)
    except Exception:
        return [f"{type(error).__name__}: its traceback cannot be shown"]


def traceback_of(error: BaseException) -> list[str]:
    """The lines that Python prints for an exception of the program."""
    if isinstance(error, SyntaxError) and error.text is None and error.filename and error.lineno:
        error.text = linecache.getline(error.filename, error.lineno)  # Python looks into the file
    own = error.__traceback__
    frames = own.tb_next if own is not None else None  # without the frame of run
    lines = "".join(traceback.TracebackException(type(error), error, frames).format())
    if frames is None:  # a syntax error in the program itself
        lines = lines.replace("Traceback (most recent call last):\n", "", 1)
    return lines.rstrip("\n").split("\n")
