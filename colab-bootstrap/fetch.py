"""Gets the release's executor onto this machine, checked by its SHA-256."""

import glob
import hashlib
import http.client
import os
import platform
import shutil
import ssl
import tempfile
import time
import urllib.error
import urllib.request

VERSION = "@VERSION@"
RELEASES = "@RELEASES@"
SHA256 = {"amd64": "@SHA256_AMD64@", "arm64": "@SHA256_ARM64@"}
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")
HOME = "/content" if os.path.isdir("/content") else os.getcwd()
LARGEST = 256 << 20  # bytes of a download
SLOWEST = 150  # seconds of a download, after which it is not tried again either


def unavailable():
    """Return why this cell has no executor for this machine, or ""."""
    if not ARCH:
        return f"the release has none for this CPU ({platform.machine()})"
    if len(SHA256[ARCH]) != 64:
        return "this cell is only the template. Use the cell from a release"
    return ""


def executor(program):
    """Make program the release's executor. Return why that was not possible, or ""."""
    folder = (os.environ.get("COLAB_RELAY_RELEASE_URL") or f"{RELEASES}/{VERSION}").rstrip("/")
    asset = f"executor-linux-{ARCH}"
    return install(f"{folder}/{asset}", SHA256[ARCH], program, f"{asset} of {VERSION}")


def digest(path):
    """Return the SHA-256 in hex of a file, as far as it is read; "" if there is no file."""
    if not os.path.isfile(path):
        return ""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read(LARGEST + 1)).hexdigest()


def uploaded(asset, wanted):
    """Find a file that a person uploaded here, to Drive or as a Kaggle dataset. Return its
    path or "", and a remark on files of that name that are different."""
    my_drive = os.path.join(HOME, "drive", "MyDrive")
    folders = [os.getcwd(), HOME, my_drive, os.path.join(my_drive, "colab-relay")]
    folders += glob.glob("/kaggle/input/*") + glob.glob("/kaggle/input/*/*/*")
    others = []
    for path in (os.path.join(folder, asset) for folder in folders):
        found = digest(path)
        if found == wanted:
            return path, ""
        if found and path not in others:
            others.append(path)
    return "", "".join(f"; {path} is a different file" for path in others)


def download(url, target):
    """Download a file. Return why that was not possible, or ""."""
    end, problem = time.monotonic() + SLOWEST, ""
    for _ in range(3):
        try:
            return copy(url, target, end)
        except urllib.error.HTTPError as error:
            problem = f"the server answered {error.code} {error.reason}"
            if error.code in (404, 410):
                return "the server does not have it"
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            if isinstance(cause, ssl.SSLCertVerificationError):
                return "its certificate is not valid"
            problem = f"the server can't be reached ({cause})"
        time.sleep(2)
    return problem


def copy(url, target, end):
    """Download a file within the bounds. Return why it exceeds them, or ""."""
    size = 0
    with urllib.request.urlopen(url, timeout=30) as answer, open(target, "wb") as file:
        while True:
            piece = answer.read1(1 << 20)  # read would wait for all of it, however slow
            if not piece:
                return ""
            size += file.write(piece)
            if size > LARGEST:
                return f"it is larger than {LARGEST >> 20} MiB"
            if time.monotonic() > end:
                return f"it took longer than {SLOWEST} s"


def install(url, wanted, program, called):
    """Make program the file that has the SHA-256 wanted: it is there, was uploaded, or is
    downloaded. Return why that was not possible, or ""."""
    if digest(program) == wanted:
        return ""
    source, others = uploaded(url.rsplit("/", 1)[1], wanted)
    handle, new = tempfile.mkstemp(prefix=".executor-", dir=os.path.dirname(program))
    os.close(handle)
    try:
        problem = "" if source else download(url, new)
        if source:
            shutil.copyfile(source, new)
        if not problem and digest(new) != wanted:
            problem = "it is not the file that this cell expects (its SHA-256 differs)"
        if problem:
            return f"{url}: {problem}; and {called} was not uploaded here or to Drive{others}"
        os.chmod(new, 0o755)
        os.replace(new, program)  # a running program can't be overwritten
        return ""
    finally:
        if os.path.exists(new):
            os.remove(new)
