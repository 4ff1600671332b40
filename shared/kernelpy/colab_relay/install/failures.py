"""What the lines of a failed installer mean, and what to do next."""

from __future__ import annotations

import re

# Patterns in the installer's last lines, with the kind of the failure and the next step.
KINDS = [
    (
        r"no space left on device",
        "disk_full",
        "Delete files on the VM, then call again.",
    ),
    (
        r"externally.managed",
        "managed",
        "This Python is managed by the system's packages: with run_code_quick make a virtual "
        "environment, or install with !pip install --break-system-packages.",
    ),
    (
        r"temporary failure in name resolution|name or service not known|failed to establish a new "
        r"connection|newconnectionerror|could not connect|dns error|failed to fetch|network is "
        r"(?:unreachable|disabled)|connecttimeout|error sending request",
        "no_network",
        "The VM did not reach the package index: check its network with run_code_quick, then call "
        "again.",
    ),
    (
        r"no matching distribution|could not find a version|was not found in the|"
        r"no versions? of|only .* (?:is|are) available|not found in the package registry",
        "no_version",
        "Check the spelling of the name and the version, and whether the release supports this "
        "Python.",
    ),
    (
        r"resolutionimpossible|conflict|because .* depends on|unsatisfiable",
        "conflict",
        "These requirements exclude each other: loosen a version, or install in separate calls.",
    ),
    (
        r"failed building wheel|failed to build|build backend|subprocess-exited-with-error|"
        r"compilation terminated",
        "build",
        "The package has no wheel for this Python and could not be built: choose another version, "
        "or install what its build needs.",
    ),
    (
        r"permission denied|read-only file system",
        "permission",
        "The kernel may not write into its own environment: install into a virtual environment "
        "with run_code_quick.",
    ),
]
MAX_DECISIVE = 8  # lines of a message
MAX_LINE = 300  # characters of each
# Lines that report progress, or advise what the next step says better.
NOISE = re.compile(
    r"\s*(?:collecting |downloading |using (?:cached|python) |requirement already satisfied|"
    r"looking in |obtaining |processing |preparing |building wheels? |created wheel |stored in |"
    r"installing |attempting uninstall|found existing installation|resolved |prepared |audited |"
    r"\[notice\]|info: |note: |to fix this you could try|\d\. (?:loosen|remove) )",
    re.IGNORECASE,
)
ERROR = re.compile(r"\s*(?:error\b|fatal\b|×|\S*Error: )", re.IGNORECASE)
OTHER = "Read the lines above: they are the installer's own."


def kind_of(lines: list[str]) -> tuple[str, str]:
    """The kind of a failure and the next step."""
    text = "\n".join(lines).lower()
    for pattern, kind, hint in KINDS:
        if re.search(pattern, text, re.DOTALL if kind == "conflict" else 0):
            return kind, hint
    return "failed", OTHER


def decisive(lines: list[str]) -> list[str]:
    """Of an installer's last lines those that say why it failed: from the first error on, without
    progress and advice. If there are too many, the first and the last of them."""
    kept = [line[:MAX_LINE] for line in lines if line.strip() and not NOISE.match(line)]
    errors = [n for n, line in enumerate(kept) if ERROR.match(line)]
    kept = kept[errors[0] :] if errors else kept
    if len(kept) > MAX_DECISIVE:
        kept = kept[:1] + kept[1 - MAX_DECISIVE :]
    return kept or [line[:MAX_LINE] for line in lines[-MAX_DECISIVE:]]
