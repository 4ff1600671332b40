"""What is wrong with a call, for its caller."""

from __future__ import annotations

import difflib
from typing import Iterable

from ..safe import short

MAX_NAMES = 20  # in one message
MAX_SEARCHED = 1000  # names among which the nearest ones are searched


class Problem(Exception):
    """A call that cannot be answered. code is one of frameCodes in relay/op/data.go."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def report(self) -> dict[str, dict[str, str]]:
        return {
            "error": {
                "code": self.code,
                "message": short(self.message, 2000),
                "hint": short(self.hint, 2000),
            }
        }


def nearest(name: str, names: Iterable[str], most: int = 60) -> str:
    """The names that exist, as prose, the ones that resemble name first; each cut to most
    characters."""
    known = [short(n, most) for n in names]
    close = difflib.get_close_matches(name[:60], known[:MAX_SEARCHED], 3, 0.6)
    listed = close + [n for n in known if n not in close]
    rest = len(listed) - MAX_NAMES
    return ", ".join(listed[:MAX_NAMES]) + (" and %d more" % rest if rest > 0 else "")
