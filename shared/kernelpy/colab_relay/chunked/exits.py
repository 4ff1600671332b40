"""Makes exit() and quit() an error of the iteration that calls them. IPython would stop the kernel
a moment later, in the middle of another iteration."""

from __future__ import annotations

from typing import Any


class Exit(BaseException):
    """It is displayed as a SystemExit but is not one, because IPython displays a real one without
    the lines that raised it."""


Exit.__name__ = Exit.__qualname__ = "SystemExit"


class Exits:
    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def __enter__(self) -> Exits:
        self.own = vars(self.shell).get("ask_exit")
        self.keepkernel = getattr(self.shell, "keepkernel_on_exit", None)
        self.shell.ask_exit = self.refuse
        return self

    def __exit__(self, *_: Any) -> None:
        if self.own is not None:
            self.shell.ask_exit = self.own
        else:
            vars(self.shell).pop("ask_exit", None)

    def refuse(self) -> None:
        self.shell.keepkernel_on_exit = self.keepkernel  # exit(keep_kernel) has changed it
        raise Exit("exit() does not end a chunked run: use continue, or raise an error")
