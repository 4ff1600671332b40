"""Which distributions are installed, and which of them are imported."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from typing import Iterable

FOLDER = re.compile(r"(.+?)-([^-]+)(?:-.*)?\.(?:dist|egg)-info", re.IGNORECASE)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, str]:
    """The versions of all distributions by normal name. The names of their folders say them;
    parsing the metadata of all would take seconds."""
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            match = FOLDER.fullmatch(entry)
            if match:
                found.setdefault(normal(match.group(1)), match.group(2))
    return found


def changes(before: dict[str, str], after: dict[str, str]) -> list[dict[str, str]]:
    """Old and new version of each distribution whose version changed; "" is for none."""
    names = sorted(n for n in set(before) | set(after) if before.get(n) != after.get(n))
    return [{"name": n, "old": before.get(n, ""), "new": after.get(n, "")} for n in names]


def modules_of(name: str) -> Iterable[str]:
    """The names of the modules that a distribution installed."""
    try:
        files = importlib.metadata.distribution(name).files or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        path = str(file)
        if path.endswith((".py", ".so", ".pyd")) and not path.startswith(("..", "/")):
            parts = path.split("/")
            parts[-1] = parts[-1].partition(".")[0]
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def in_use(name: str) -> bool:
    """Whether a module of the distribution is imported, so that its old code goes on running."""
    return any(module in sys.modules for module in modules_of(name))
