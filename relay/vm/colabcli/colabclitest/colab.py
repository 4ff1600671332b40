"""A stand-in for Google's command line, version 0.7.5, before a Google that is a folder.

It has the commands that the relay uses, with the options, texts and exit codes of the real
program. table.json says what each command takes. The folder $STANDIN holds what Google would know;
see standin.py. What the program itself remembers is in $HOME, as with the real one.

    colab.py COMMAND ...     as the real program
    colab.py standin-end ENDPOINT...     ends VMs as Google does at any time
"""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from typing import Any, List, NoReturn, Optional, Tuple

from standin import STANDIN, Google, Json, complain, crash, fault, next_fault, read, say, write

STATE = os.path.expanduser("~/.config/colab-cli/sessions.json")
GPUS = ["A100", "H100", "L4", "T4", "G4"]
ONE_SHAPE = ["L4", "V5E1", "V6E1"]
PROXY = "https://8080-m-s-standin.us-central1-0.prod.colab.dev"


class Sessions:
    """What the program remembers: names of VMs."""

    def all(self) -> Json:
        return read(STATE)

    def add(self, name: str, endpoint: str) -> None:
        write(STATE, {**self.all(), name: endpoint})

    def remove(self, name: str) -> None:
        write(STATE, {key: value for key, value in self.all().items() if key != name})

    def need(self, name: Optional[str]) -> str:
        endpoint = self.all().get(name or "")
        if endpoint is None:
            say("[colab] Session '%s' not found." % name)
            sys.exit(1)
        return str(endpoint)


google, known = Google(), Sessions()


def lost(name: str) -> NoReturn:
    say("[colab] Session '%s' appears to be lost (404/401). Cleaning up." % name)
    known.remove(name)
    sys.exit(1)


def new(options: Json) -> None:
    name = options.get("--session") or uuid.uuid4().hex[:6]
    variant, accelerator = "DEFAULT", "NONE"
    if "--tpu" in options:
        variant, accelerator = "TPU", "V5E1" if options["--tpu"].lower() == "v5e1" else "V6E1"
    elif "--gpu" in options:
        gpu = options["--gpu"].upper()
        variant, accelerator = "GPU", gpu if gpu in GPUS else "A100"
    high = bool(options.get("--high-mem"))
    if high and accelerator in ONE_SHAPE:
        complain("[colab] --high-mem ignored: this accelerator only offers one machine shape.")
        high = False
    say("[colab] Creating session '%s'..." % name)
    endpoint = google.assign(variant, accelerator, "High-RAM" if high else "Standard")
    if next_fault("kill_new"):
        os.kill(os.getpid(), signal.SIGKILL)
    known.add(name, endpoint)
    say("[colab] Session READY.")


def sessions() -> None:
    vms = google.vms()
    endpoints = [vm["endpoint"] for vm in vms]
    stale = [name for name, endpoint in known.all().items() if endpoint not in endpoints]
    for name in stale:
        known.remove(name)
    if stale:
        say("[colab] Pruned %d stale local session(s)." % len(stale))
    if not vms:
        say("[colab] No active sessions found on server.")
    names = {endpoint: name for name, endpoint in known.all().items()}
    for vm in vms:
        hardware = "CPU" if vm["accelerator"] == "NONE" else vm["accelerator"]
        say(
            "[%s] %s | Hardware: %s | Shape: %s | Variant: %s"
            % (
                names.get(vm["endpoint"], "?"),
                vm["endpoint"],
                hardware,
                vm["shape"],
                vm["variant"],
            )
        )


def stop(options: Json) -> None:
    name = options.get("--session")
    endpoint = known.all().get(str(name))
    if endpoint is None:
        say("[colab] Session '%s' not found." % name)
        return
    say("[colab] Stopping session '%s'..." % name)
    google.request("/tun/m/unassign/" + endpoint)
    google.end(endpoint)
    known.remove(str(name))
    say("[colab] Session terminated.")


def upload(options: Json, local: str, remote: str) -> None:
    vm = google.vm(known.need(options.get("--session")))
    if not os.path.isfile(local):
        say("[colab] Local file '%s' not found." % local)
        sys.exit(1)
    url = (
        PROXY + "/api/contents/" + remote.strip("/") + "?authuser=0&colab-runtime-proxy-token=TOKEN"
    )
    problem = ""
    if fault("unreachable"):
        problem = (
            "HTTPSConnectionPool(host='8080-m-s-standin', port=443): Max retries exceeded with "
            "url: /api/contents/x?authuser=0&colab-runtime-proxy-token=TOKEN (Caused by X)"
        )
    elif not vm or fault("lost"):
        problem = "File or directory not found: " + remote
    else:
        try:
            with open(local, "rb") as source, open("/" + remote.strip("/"), "wb") as target:
                target.write(source.read())
        except OSError:
            problem = "500 Server Error: Internal Server Error for url: " + url
    if problem:
        say("[colab] Upload failed: " + problem)
        sys.exit(1)
    say("[colab] Uploaded '%s' to '%s'" % (local, remote))


def kernel_of(endpoint: str, vm: Json) -> Any:
    """A client of the VM's kernel, which is started if there is none."""
    from jupyter_client.blocking.client import BlockingKernelClient
    from jupyter_client.connect import write_connection_file

    file = os.path.join(vm["root"], "kernel.json")
    if not os.path.exists(file):
        content = os.path.join(vm["root"], "content")
        os.makedirs(content)
        write_connection_file(file, ip=os.path.join(vm["root"], "k"), transport="ipc", key=b"k")
        subprocess.Popen(
            [sys.executable, "-m", "ipykernel_launcher", "-f", file],
            cwd=content,
            env={**os.environ, "STANDIN_VM": google.path(endpoint), "HOME": vm["root"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    deadline = time.monotonic() + 60
    while True:
        client = BlockingKernelClient(connection_file=file)
        try:
            client.load_connection_file()
            client.start_channels()
            client.wait_for_ready(timeout=60)
            return client
        except (RuntimeError, ValueError):  # a kernel that is still starting has no heartbeat, and
            client.stop_channels()  # writes its connection file again
            if time.monotonic() > deadline:
                raise


def show(message: Json) -> None:
    content = message["content"]
    kind = message["header"]["msg_type"]
    if kind == "stream":
        stream = sys.stderr if content["name"] == "stderr" else sys.stdout
        stream.write(content["text"])
        stream.flush()
    elif kind == "error":
        complain("".join(content["traceback"]))
    elif kind in ("execute_result", "display_data"):
        say(content["data"].get("text/plain", ""))


def execute(options: Json) -> None:
    name = options.get("--session")
    endpoint = known.need(name)
    vm = google.vm(endpoint)
    code = sys.stdin.read()
    with open(os.path.join(STANDIN, "code"), "a", encoding="utf-8") as history:
        history.write(code)
    if not code.strip():
        sys.exit(0)
    if fault("unreachable"):
        crash("requests.exceptions.ConnectionError: ('Connection aborted.', OSError(101))")
    if not vm or fault("lost"):
        lost(str(name))
    client = kernel_of(endpoint, vm)
    try:
        client.execute_interactive(
            code, timeout=float(options.get("--timeout", 30)), output_hook=show, allow_stdin=False
        )
    except TimeoutError:
        crash("TimeoutError: Timeout waiting for output")
    finally:
        client.stop_channels()


def usage(command: str, problem: str) -> NoReturn:
    complain("Usage: colab %s [OPTIONS]\nTry 'colab %s -h' for help.\n" % (command, command))
    complain("Error: " + problem)
    sys.exit(2)


def parse(command: str, words: List[str]) -> Tuple[Json, List[str]]:
    """The options, by the last of their flags, and the arguments of a command."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "table.json")) as file:
        table = json.load(file)
    if command not in table:
        usage("", "No such command '%s'." % command)
    options: Json = {}
    arguments: List[str] = []
    words = list(words)
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            arguments.append(word)
            continue
        taken = [option for option in table[command]["options"] if word in option["flags"]]
        if not taken:
            usage(command, "No such option: " + word)
        if taken[0]["value"] and not words:
            usage(command, "Option '%s' requires an argument." % word)
        options[taken[0]["flags"][-1]] = words.pop(0) if taken[0]["value"] else True
    least, most = table[command]["arguments"]
    if not least <= len(arguments) <= most:
        usage(command, "Missing argument, or got unexpected extra argument.")
    return options, arguments


def main() -> None:
    command, words = sys.argv[1], sys.argv[2:]
    if command == "standin-end":
        for endpoint in words:
            google.end(endpoint)
        return
    with open(os.path.join(STANDIN, "calls"), "a", encoding="utf-8") as calls:
        calls.write(json.dumps({"argv": sys.argv[1:], "environ": dict(os.environ)}) + "\n")
    options, arguments = parse(command, words)
    if command == "sessions":
        sessions()
    elif command == "new":
        new(options)
    elif command == "stop":
        stop(options)
    elif command == "exec":
        execute(options)
    elif command == "upload":
        upload(options, arguments[0], arguments[1])


if __name__ == "__main__":
    main()
