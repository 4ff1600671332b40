"""The errors of saving and loading, and messages that say why a variable failed."""

from __future__ import annotations

import errno

from ..safe import class_name, short

MAX_REASON = 300  # characters


class CannotSave(Exception):
    """An object cannot be saved. The message says why."""


class Damaged(Exception):
    """A file is not what was saved. The message says how it differs."""


def reason(error: BaseException, doing: str) -> str:
    """The message of an exception or, if it has none, what was being done when it was raised.
    This never calls str(error), which may run the user's code."""
    message = message_of(error)
    if type(error) in (CannotSave, Damaged):
        return short(message, MAX_REASON)
    if isinstance(error, RecursionError) or isinstance(error.__context__, RecursionError):
        return "it is nested too deeply for Python's recursion limit"
    if isinstance(error, MemoryError):
        return "there is not enough memory to save it"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the VM's disk is full"
    name = class_name(type(error))
    detail = ": " + message if message else " without a message, while " + doing
    return short(name + detail, MAX_REASON)


def message_of(error: BaseException) -> str:
    """The first argument of an exception that is a plain string or number."""
    for arg in error.args:
        if type(arg) is str and arg:
            return arg
    return next((str(arg) for arg in error.args if type(arg) is int), "")
