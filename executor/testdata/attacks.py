"""Attacks of a kernel's code on an executor that runs as another user.

user_linux_test.go runs them. Each function tries every way that it knows, and returns the
ways that worked.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Callable, Dict

Ways = Dict[str, Callable[[], object]]

libc = ctypes.CDLL(None, use_errno=True)
KEYCTL = 219 if platform.machine() == "aarch64" else 250
PIDFD_GETFD = 438


def worked(ways: Ways) -> list[str]:
    """Return the names of the ways that raise nothing."""
    done: list[str] = []
    for name, way in ways.items():
        try:
            way()
        except (OSError, ValueError):
            continue
        done.append(name)
    return done


def call(function: str, *arguments: object) -> int:
    """Call a function of the C library; raise OSError if it fails."""
    result = int(libc[function](*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), function)
    return result


def read(path: str) -> bytes:
    """Read the beginning of a file."""
    with open(path, "rb") as file:
        return file.read(64)


def touch(path: str, flags: int) -> None:
    """Open a file."""
    os.close(os.open(path, flags, 0o666))


def memory(executor: int) -> list[str]:
    """Read the executor's memory, environment, descriptors and folders."""
    proc = f"/proc/{executor}/"
    ways: Ways = {}
    for name in ("environ", "mem", "maps", "auxv", "syscall", "stack", "io", "pagemap"):
        ways[name] = partial(read, proc + name)
    for name in ("fd", "map_files", "root", "cwd"):
        ways[name] = partial(os.listdir, proc + name)
    for name in ("exe", "root", "cwd", "ns/user"):
        ways["link " + name] = partial(os.readlink, proc + name)
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    ways["ptrace"] = partial(call, "ptrace", 0x4206, executor, None, None)  # PTRACE_SEIZE
    ways["process_vm_readv"] = partial(call, "process_vm_readv", executor, vector, 1, vector, 1, 0)
    pidfd = os.pidfd_open(executor)
    for number in range(16):
        ways[f"pidfd_getfd {number}"] = partial(call, "syscall", PIDFD_GETFD, pidfd, number, 0)
    return worked(ways)


def signals(executor: int) -> list[str]:
    """Signal, slow down or limit the executor, its group and each of its threads."""
    ways: Ways = {}
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):
        ways[f"kill {number}"] = partial(os.kill, executor, number)
        ways[f"killpg {number}"] = partial(os.killpg, os.getpgid(executor), number)
    for thread in os.listdir(f"/proc/{executor}/task"):
        ways["tgkill " + thread] = partial(call, "tgkill", executor, int(thread), 9)
    limit = (ctypes.c_uint64 * 2)(3, 3)
    ways["priority"] = partial(os.setpriority, os.PRIO_PROCESS, executor, 19)
    ways["affinity"] = partial(os.sched_setaffinity, executor, {0})
    ways["out of memory"] = partial(Path(f"/proc/{executor}/oom_score_adj").write_text, "1000")
    ways["limits"] = partial(call, "prlimit", executor, 7, limit, None)
    return worked(ways)


def files(paths: list[str], own: str) -> list[str]:
    """Read, change, replace, rename, remove or link files that belong to the executor."""
    ways: Ways = {}
    for number, path in enumerate(paths):
        taken = os.path.join(own, f"taken-{number}")
        ways["read " + path] = partial(read, path)
        ways["list " + path] = partial(os.listdir, path)
        ways["append " + path] = partial(touch, path, os.O_WRONLY | os.O_APPEND)
        ways["truncate " + path] = partial(os.truncate, path, 0)
        ways["create in " + path] = partial(touch, path + "/new", os.O_WRONLY | os.O_CREAT)
        ways["mode of " + path] = partial(os.chmod, path, 0o777)
        ways["times of " + path] = partial(os.utime, path, (0, 0))
        ways["hard link to " + path] = partial(os.link, path, taken)
        ways["rename " + path] = partial(os.rename, path, taken)
        ways["replace " + path] = partial(os.replace, own, path)
        ways["remove " + path] = partial(os.remove, path)
        ways["remove folder " + path] = partial(os.rmdir, path)
    return worked(ways)


def rights(setuid_program: str, secret: str) -> list[str]:
    """Get other rights: by system calls, set-user-id programs and namespaces."""
    device = os.makedev(1, 1)  # the machine's memory
    done = worked(
        {
            "setuid": partial(os.setuid, 0),
            "setresuid": partial(os.setresuid, -1, 0, -1),
            "setgid": partial(os.setgid, 0),
            "setgroups": partial(os.setgroups, [0]),
            "chroot": partial(os.chroot, "/"),
            "mount": partial(call, "mount", b"none", b"/mnt", b"tmpfs", 0, None),
            "mknod": partial(os.mknod, "device", 0o020600, device),
            "clear no_new_privs": partial(call, "prctl", 38, 0, 0, 0, 0),
        }
    )
    shown = subprocess.run([setuid_program, "-u"], stdout=subprocess.PIPE).stdout.decode().strip()
    if shown != str(os.getuid()):
        done.append("set-user-id program: " + shown)
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.startswith("Cap") and int(value, 16) or name == "NoNewPrivs" and int(value) != 1:
            done.append(line)
    code = f"import ctypes; ctypes.CDLL(None).unshare(0x10020000); open({secret!r})"
    if subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0:
        done.append("user namespace")
    return done


def descriptors(forbidden: str) -> list[str]:
    """Use files that the executor has inherited or opened."""
    done: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue
        if forbidden in target:
            done.append(f"{name}: {target}")
    return done


def keyring(name: bytes) -> list[str]:
    """Find a key in the keyrings that the executor was started with."""
    search = 10
    rings = {"session": -3, "user": -4, "user session": -5}
    return worked(
        {
            title: partial(call, "syscall", KEYCTL, search, ring, b"user", name, 0)
            for title, ring in rings.items()
        }
    )


def terminal(path: str) -> list[str]:
    """Open the executor's terminal."""
    flags = os.O_RDWR | os.O_NOCTTY
    done = worked({name: partial(touch, name, flags) for name in ("/dev/tty", path)})
    return done + [f"descriptor {fd}" for fd in range(3) if os.isatty(fd)]


def sockets(folder: str, victim: str) -> None:
    """Lead the executor's connections to the kernel to a socket that only root may use."""
    for name in os.listdir(folder):
        if name.startswith("k-"):
            os.remove(os.path.join(folder, name))
            os.symlink(victim, os.path.join(folder, name))
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family == socket.AF_UNIX:
                    one.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


def swap(door: str, inside: str, outside: str) -> None:
    """Make a name a folder and a link to another one in turn, for ever."""
    moved = 0
    while True:
        try:
            os.rename(inside, door)
            os.rename(door, inside)
            os.symlink(outside, door)
            os.remove(door)
        except OSError:  # the executor has made a folder of that name meanwhile
            moved += 1
            os.rename(door, f"{door}-{moved}")


def stay(name: str) -> None:
    """Leave processes that try to outlive the kernel, each in another way."""
    sleep = f"import time; {name!r}; time.sleep(600)"
    c = "import ctypes, os, signal; c = ctypes.CDLL(None); "
    ways = {
        "in its own session": sleep,
        "without the death signal": f"{c}c.prctl(1, 0); {sleep}",
        "ignoring signals": f"{c}[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; {sleep}",
        "not dumpable": f"{c}c.prctl(4, 0); {sleep}",
        "in its own namespaces": f"{c}c.unshare(0x30000000); os.fork(); {sleep}",
        "with a misleading name": f"{c}c.prctl(15, b'x\\nGroups:\\t0'); {sleep}",
        "stopped": f"{c}{name!r}; os.kill(os.getpid(), signal.SIGSTOP)",
        "without its first thread": f"{c}import platform, threading, time; {name!r}; threading.Thread(target=time.sleep, args=(600,)).start(); c.syscall({{'x86_64': 60, 'aarch64': 93}}[platform.machine()], 0)",
        "always another": f"{c}{name!r}\nimport time\nend = time.time() + 60\nwhile time.time() < end:\n os.fork() and os._exit(0)\n os.setsid()",
    }
    for code in ways.values():
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    call("prctl", 1, 0, 0, 0, 0)  # the kernel itself would outlive the executor, too


def remains(folder: str, owner: str, precious: str) -> None:
    """Leave links and deep folders where the executor removes the kernel's files."""
    temp = os.path.dirname(folder)
    for number in range(20):
        os.symlink(precious, os.path.join(temp, f"colab-relay-{owner}-{number}"))
    os.symlink(precious, os.path.join(folder, "link"))
    os.chdir(folder)
    for _ in range(3000):
        os.mkdir("deep")
        os.chdir("deep")
    os.symlink(precious, "link")
    os.chdir("/")
