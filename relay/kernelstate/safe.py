"""Small ways to look at names and objects that run none of the user's code."""

import errno
import importlib.metadata
import sys
import types

FIRST_LINE = b"colab-relay kernel state 1\n"  # of the data file
MAX_REASON = 300


class Unkeepable(Exception):
    """An object that can't be saved; the text says why, in words for the user."""


class Damaged(Exception):
    """A file that is not what was saved; the text says how."""


def text(value, most=200):
    """An exact str that is valid UTF-8 and not long."""
    value = str.__str__(value).encode("utf-8", "backslashreplace").decode("utf-8")
    return value if len(value) <= most else value[: most - 1] + "…"


def class_name(cls):
    return text(type.__dict__["__name__"].__get__(cls))


def class_module(cls):
    module = type.__dict__["__module__"].__get__(cls)
    return module if type(module) is str else ""


def module_dict(name):
    """The names in a module that is imported already, or none."""
    module = sys.modules.get(name)
    if isinstance(module, types.ModuleType):
        return module.__dict__
    return {}


def reason(error, doing):
    """What an exception says, and where it says nothing, what was being done. Not
    str(error): that may be the user's code, or the repr of an object of theirs."""
    told = said(error)
    if type(error) in (Unkeepable, Damaged):
        return text(told, MAX_REASON)
    if isinstance(error, RecursionError) or isinstance(error.__context__, RecursionError):
        return "it is nested too deeply for Python's recursion limit"
    if isinstance(error, MemoryError):
        return "there is not enough memory to save it"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the VM's disk is full"
    name = class_name(type(error))
    return text(name + (": " + told if told else " without a message, while " + doing), MAX_REASON)


def said(error):
    for arg in error.args:
        if type(arg) is str and arg:
            return arg
    return next((str(arg) for arg in error.args if type(arg) is int), "")


def importable(obj, module, qualname):
    """Whether importing gives this very object in another kernel too."""
    if type(module) is not str or type(qualname) is not str or module == "__main__":
        return False
    found = sys.modules.get(module)
    try:
        for part in qualname.split("."):
            found = getattr(found, part)
    except Exception:
        return False
    return found is obj


def version_of(package):
    """Of a library, as a string; empty when it tells none or is not there."""
    version = module_dict(package).get("__version__")
    if type(version) is str:
        return text(version, 60)
    try:
        return text(importlib.metadata.version(package), 60)
    except Exception:
        return ""


def python_version():
    return "%d.%d.%d" % sys.version_info[:3]
