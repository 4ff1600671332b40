"""Which requirements are accepted: names with extras, versions and markers, and names with an
https address. Options and paths are not, so that nothing but the index decides what is run."""

from __future__ import annotations

import os
import re
import stat

MAX_REQUIREMENTS = 500
MAX_FILE = 64 << 10  # bytes
EXAMPLE = 'Give requirements as in: pandas>=2,<3 "scikit-learn[examples]==1.7.*" rich'

NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
EXTRAS = r"(?:\s*\[\s*%s(?:\s*,\s*%s)*\s*\])?" % (NAME, NAME)
VERSION = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9_.*+!-]*[A-Za-z0-9*]"
VERSIONS = r"(?:\s*%s(?:\s*,\s*%s)*)?" % (VERSION, VERSION)
ADDRESS = r"\s*@\s*(?:git\+)?https://[A-Za-z0-9][A-Za-z0-9._~:/@!$&+=%#-]*"
MARKER = r"(?:\s*;\s*[A-Za-z_][A-Za-z0-9_.'\"<>=!~ ()-]*)?"
REQUIREMENT = re.compile(NAME + EXTRAS + "(?:" + ADDRESS + "|" + VERSIONS + ")")
LINE = re.compile("(?:" + REQUIREMENT.pattern + ")" + MARKER)
COMMANDS = re.compile(
    r"\s*[!%]?\s*(?:(?:python3?|uv)\s+(?:-m\s+)?)?(?:pip3?|uv|conda)\s+(?:\S+\s+)?(?:install|add)\b"
)


class Refused(Exception):
    """A requirement that is not accepted."""


def split(text: str) -> list[str]:
    """The requirements in a text, which spaces, commas or line breaks separate. One with a marker
    takes a line of its own."""
    if COMMANDS.match(text):
        raise Refused("give the requirements only, without the command")
    found: list[str] = []
    for line in text.splitlines():
        found += [line.strip()] if ";" in line else split_line(line)
    return checked(found)


def split_line(line: str) -> list[str]:
    found, at = [], 0
    line = line.replace('"', " ").replace("'", " ").strip()
    while at < len(line):
        match = REQUIREMENT.match(line, at)
        end = match.end() if match else at
        if match is None or end < len(line) and line[end] not in " \t,":
            raise Refused("%r is not a requirement" % line[at:][:100])
        found.append(match.group())
        at = end + len(line[end:]) - len(line[end:].lstrip(" \t,"))
    return found


def name(requirement: str) -> str:
    """The name in a requirement that is accepted."""
    match = re.match(NAME, requirement)
    assert match is not None
    return match.group()


def read(path: str) -> list[str]:
    """The requirements in a file on the VM, which the kernel reads with its own rights."""
    path = os.path.expanduser(path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for its writer
    except (OSError, ValueError) as e:
        raise Refused("requirements_path %r can't be read: %s" % (path[:200], e)) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Refused("requirements_path %r is not a file" % path[:200])
    with os.fdopen(handle, "rb") as file:
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise Refused("requirements_path %r is over %d KiB" % (path[:200], MAX_FILE >> 10))
    lines = content.decode("utf-8-sig", "replace").splitlines()
    found = []
    for n, line in enumerate(lines, 1):
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if line.startswith("-") or " --" in line or line.endswith("\\"):
            raise Refused(
                "line %d of %r has an option or goes on in the next line" % (n, path[:200])
            )
        if line:
            found.append(line)
    return checked(found)


def checked(found: list[str]) -> list[str]:
    for requirement in found:
        if LINE.fullmatch(requirement) is None or "@-" in requirement:  # git would take an option
            raise Refused("%r is not a requirement" % requirement[:100])
    if len(found) > MAX_REQUIREMENTS:
        raise Refused("over %d requirements" % MAX_REQUIREMENTS)
    return found
