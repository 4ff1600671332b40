"""How a run that raised something is shown."""

from __future__ import annotations

import sys
import warnings
from typing import Any, Callable

from IPython.core.autocall import ZMQExitAutocall


def show(shell: Any, error: BaseException, lines: list[str]) -> None:
    """Has IPython show these lines in place of its own traceback of the error, which the caller
    raises next."""
    shown: Callable[..., None] = shell.showtraceback

    def showtraceback(*args: Any, **kwargs: Any) -> None:
        shell.showtraceback = shown
        if sys.exc_info()[1] is not error:
            shown(*args, **kwargs)
            return
        no_advice()
        shell._showtraceback(type(error), error, lines)

    shell.showtraceback = showtraceback


class Exit(ZMQExitAutocall):
    """exit and quit as a program has them: they end the run. Those of IPython let the code run on,
    and end the kernel a moment later."""

    def __call__(self, code: object = None, **_: Any) -> None:
        raise SystemExit(code)


def own_exits(shell: Any) -> None:
    """Has exit and quit end the run, and never the kernel."""

    def ask_exit() -> None:
        raise SystemExit

    shell.ask_exit = ask_exit
    shell.exiter = Exit(shell)  # which %reset puts there again
    for names in (shell.user_ns, shell.user_ns_hidden):
        names.update(exit=shell.exiter, quit=shell.exiter)


def quiet_exits(shell: Any) -> None:
    """Has IPython show SystemExit as Python does: the text that sys.exit got, and nothing for a
    number. Readers of the run take the exit code from the exception's value."""
    shown: Callable[..., None] = shell.showtraceback

    def showtraceback(*args: Any, **kwargs: Any) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, SystemExit) and kwargs.get("exception_only"):
            no_advice()
            shell._showtraceback(type(error), error, exit_text(error))
        else:
            shown(*args, **kwargs)

    shell.showtraceback = showtraceback


def exit_text(error: SystemExit) -> list[str]:
    """The lines that Python prints to stderr when this ends a program."""
    if error.code is None or isinstance(error.code, int):
        return []
    return str(error.code).split("\n")


def no_advice() -> None:
    """Suppresses IPython's warning that exit would end the kernel. It follows each SystemExit, and
    the code may have changed the filters."""
    warnings.filterwarnings("ignore", "To exit: use 'exit'", UserWarning)
