"""One call of install_packages: which installer, with which arguments, and what changed."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
from typing import Any

from IPython.core.getipython import get_ipython

from ..ending import show
from . import child, distributions, failures, requirements

MIME = "application/vnd.colab-relay.install+json"
MAX_LISTED = 200  # changed distributions
RAW_PROGRESS_SINCE = (24, 1)  # the release of pip


class InstallFailed(Exception):
    """The installer ended with an error, or there is nothing to install."""


def install(packages: str, path: str, upgrade: bool) -> None:
    """Installs requirements, displays what changed, and raises InstallFailed if it failed. Of no
    error it shows the traceback, which would quote this package."""
    try:
        perform(packages, path, upgrade)
    except KeyboardInterrupt as error:
        show(get_ipython(), error, ["KeyboardInterrupt: the installation was interrupted."])
        raise
    except InstallFailed:
        raise
    except requirements.Refused as e:
        fail(str(e), {"kind": "bad_request", "hint": requirements.EXAMPLE})
    except Exception as e:
        fail("%s: %s" % (type(e).__name__, e), {"kind": "failed", "hint": UNEXPECTED})


UNEXPECTED = "Install with a line such as !pip install NAME in run_code_long."


def perform(packages: str, path: str, upgrade: bool) -> None:
    wanted = requirements.split(packages) + (requirements.read(path) if path else [])
    if not wanted:
        raise requirements.Refused("packages is empty")
    before = distributions.installed()
    name, argv = command(wanted, upgrade)
    try:
        code, last = child.run(argv)
    finally:
        importlib.invalidate_caches()
        report = changed(before, name, wanted)
        say(report)
        publish(report)
    if code:
        kind, hint = failures.kind_of(last)
        message = "%s ended with code %d:\n%s" % (name, code, "\n".join(failures.decisive(last)))
        fail(message, dict(report, kind=kind, hint=hint))


def command(wanted: list[str], upgrade: bool) -> tuple[str, list[str]]:
    """The installer's name and its arguments; no shell reads them."""
    more = ["--upgrade"] if upgrade else []
    uv = find_uv()
    if uv:
        return "uv", [
            uv,
            "pip",
            "install",
            "--no-progress",
            "--python",
            sys.executable,
        ] + more + wanted
    if importlib.util.find_spec("pip") is None:
        fail(
            "the kernel's Python has neither uv nor pip", {"kind": "not_supported", "hint": NO_PIP}
        )
    pip = [
        sys.executable,
        "-u",
        "-m",
        "pip",
        "install",
        "--no-input",
        "--disable-pip-version-check",
    ]
    bar = "raw" if pip_release() >= RAW_PROGRESS_SINCE else "off"
    return "pip", pip + ["--progress-bar", bar] + more + wanted


NO_PIP = "With run_code_quick run: import ensurepip; ensurepip.bootstrap(). Then call again."


def find_uv() -> str | None:
    return shutil.which("uv") or shutil.which("uv", path=os.path.dirname(sys.executable))


def pip_release() -> tuple[int, ...]:
    numbers = importlib.metadata.version("pip").split(".")[:2]
    return tuple(int(n) if n.isdigit() else 0 for n in numbers)


def changed(before: dict[str, str], installer: str, wanted: list[str]) -> dict[str, Any]:
    after = distributions.installed()
    found = distributions.changes(before, after)
    names = {distributions.normal(requirements.name(w)) for w in wanted}
    same = sorted(n for n in names if n in after and before.get(n) == after[n])
    stale = [c["name"] for c in found if c["old"] and distributions.in_use(c["name"])]
    return {
        "installer": installer,
        "installed": found[:MAX_LISTED],
        "installed_count": len(found),
        "unchanged": [{"name": n, "old": after[n], "new": after[n]} for n in same[:MAX_LISTED]],
        "restart_needed": stale[:MAX_LISTED],
    }


def say(report: dict[str, Any]) -> None:
    """Prints what changed, for readers of the run."""
    for c in report["installed"]:
        print("%s: %s → %s" % (c["name"], c["old"] or "not installed", c["new"] or "removed"))
    if not report["installed"]:
        print("No distribution changed.")
    if report["restart_needed"]:
        print(
            "Already imported, so the old code goes on running until the kernel restarts: "
            + ", ".join(report["restart_needed"])
        )


def fail(message: str, report: dict[str, Any]) -> None:
    """Ends the run with a message in place of a traceback."""
    publish(report)
    error = InstallFailed(message)
    show(get_ipython(), error, ["InstallFailed: " + message, "Next step: " + report["hint"]])
    raise error


def publish(report: dict[str, Any]) -> None:
    sys.stdout.flush()
    get_ipython().display_pub.publish({MIME: report})
