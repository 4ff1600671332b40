"""What a cell needs besides Python: calls that only work in Colab's page in a browser, and
accelerators. Only what is plain to see is found; nothing is said of code that asks first."""

from __future__ import annotations

import ast
import re
from typing import Any

from .magics import Magic, is_shell
from .names import arguments_of

# Functions of google.colab that talk to the page.
PAGE_CALLS = frozenset(
    "auth.authenticate_service_account auth.authenticate_user drive.flush_and_unmount drive.mount "
    "files.download files.upload files.upload_file files.view output.eval_js "
    "output.register_callback userdata.get".split()
)
COLAB = "google.colab"
GPU_LIBRARIES = frozenset(["cudf", "cugraph", "cuml", "cupy", "pynvml"])
GPU_TEXT = re.compile(r"cuda(:\d+)?|/?(device:)?gpu(:\d+)?", re.IGNORECASE)
TPU_TEXT = re.compile(r"tpu", re.IGNORECASE)
ASKS = frozenset(["is_available", "list_physical_devices", "list_logical_devices"])


class Demands(ast.NodeVisitor):
    """Reads one cell."""

    def __init__(self, tree: ast.AST) -> None:
        self.page_calls: set[str] = set()
        self.accelerators: set[str] = set()
        self.aliases: dict[str, str] = {}  # of modules and functions of google.colab
        self.visit(tree)

    def visit_Import(self, node: Any) -> None:
        for item in node.names:
            self.library(item.name)
            if item.name.startswith(COLAB + ".") and item.asname:
                self.aliases[item.asname] = item.name[len(COLAB) + 1 :]

    def visit_ImportFrom(self, node: Any) -> None:
        module = node.module or ""
        self.library(module)
        for item in node.names:
            if module == COLAB or module.startswith(COLAB + "."):
                path = (module + "." + item.name)[len(COLAB) + 1 :]
                self.aliases[item.asname or item.name] = path
            elif module == "google" and item.name == "colab":
                self.page_calls.add(COLAB)

    def library(self, module: str) -> None:
        root = module.partition(".")[0]
        if module == COLAB or module.startswith(COLAB + "."):
            self.page_calls.add(COLAB)
        elif root in GPU_LIBRARIES:
            self.accelerators.add("gpu")
        elif root == "torch_xla":
            self.accelerators.add("tpu")

    def visit_IfExp(self, node: Any) -> None:
        """ "cuda" if torch.cuda.is_available() else "cpu" works without one."""
        if not asks(node.test):
            self.generic_visit(node)

    def visit_If(self, node: Any) -> None:
        if not asks(node.test):
            self.generic_visit(node)

    def visit_Try(self, node: Any) -> None:
        for child in node.handlers + node.orelse + node.finalbody:
            self.visit(child)

    def visit_Call(self, node: Any) -> None:
        self.generic_visit(node)
        if is_shell(node.func):
            if re.match(r"\s*nvidia-smi\b", Magic(node).line):
                self.accelerators.add("gpu")
            return
        path = dotted(node.func)
        root, _, rest = path.partition(".")
        path = self.aliases.get(root, root) + "." * bool(rest) + rest
        call = ".".join(path.split(".")[-2:])
        if call in PAGE_CALLS:
            self.page_calls.add(call)
        if path.rpartition(".")[2] in ASKS:
            return
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not node.args:
            self.accelerators.add("gpu")
        if path.endswith("TPUClusterResolver"):
            self.accelerators.add("tpu")
        for argument in arguments_of(node):
            self.text(getattr(argument, "value", None))

    def text(self, value: object) -> None:
        if isinstance(value, str):
            if GPU_TEXT.fullmatch(value):
                self.accelerators.add("gpu")
            elif TPU_TEXT.fullmatch(value):
                self.accelerators.add("tpu")


def dotted(node: Any) -> str:
    """a.b.c for a chain of attributes; what is before it is left out."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        words.append(node.id)
    return ".".join(reversed(words))


def asks(test: ast.AST) -> bool:
    """Whether a condition asks what the machine has."""
    return any(getattr(node, "attr", None) in ASKS for node in ast.walk(test))
