"""What IPython's own syntax does, as its transformer writes it in Python, and other code that may
read or write any name."""

from __future__ import annotations

import ast
import re
from typing import Any

# Magics whose text is ordinary code.
RUNS_HERE = frozenset(["time", "capture", "prun", "memit", "mprun", "lprun"])
RUNS_APART = frozenset(["timeit"])  # in a function, so that its names do not stay
# Magics that neither read nor write names of the user.
HARMLESS = frozenset(
    "alias_magic autoreload automagic colors config doctest_mode gui history HTML html javascript "
    "js latex load_ext lsmagic magic markdown matplotlib pdoc pfile pinfo pinfo2 pprint precision "
    "psource quickref reload_ext svg SVG tensorflow_version unload_ext who who_ls whos "
    "xmode".split()
)
OPAQUE = frozenset(["exec", "eval", "execfile", "__import__"])
NAMESPACES = frozenset(["globals", "locals", "vars"])
OPAQUE_ATTRIBUTES = frozenset(
    ["chdir", "environ", "putenv", "run_cell", "user_ns", "user_global_ns"]
)
# An option with its value, such as -n 10, before the code of %timeit.
OPTION = re.compile(r"\s*(?:-[nrp]\s*\d+|-[lTDsf]\s+\S+|--?[A-Za-z][\w-]*)(?=\s|$)")


def is_shell(node: Any) -> bool:
    """Whether this is get_ipython(), or an attribute of it."""
    if isinstance(node, ast.Attribute):
        node = node.value
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "get_ipython"
    )


def is_namespace(node: Any) -> bool:
    """Whether this is globals(), locals() or vars()."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in NAMESPACES
        and not node.args
    )


def is_opaque_attribute(node: ast.AST) -> bool:
    return getattr(node, "attr", None) in OPAQUE_ATTRIBUTES


class Magic:
    """A magic or a command, as get_ipython().run_cell_magic("time", "", "x = 1\\n") calls it."""

    def __init__(self, node: ast.Call) -> None:
        constants = [a.value for a in node.args if isinstance(a, ast.Constant)]
        texts = [text for text in constants if isinstance(text, str)]
        method = getattr(node.func, "attr", "")
        self.is_command = method in ("system", "getoutput", "system_raw")
        self.is_cell = method == "run_cell_magic"
        known = self.is_cell or method == "run_line_magic"
        self.name = texts[0] if known and texts else ""
        self.line, self.body = (texts[1:] + ["", ""])[:2] if known else ("".join(texts), "")

    def code(self) -> str:
        """The Python that the magic runs, without its options."""
        line = self.line
        found = OPTION.match(line)
        while found:
            line = line[found.end() :]
            found = OPTION.match(line)
        if self.name == "capture" or not self.is_cell:
            return self.body if self.is_cell else line.lstrip()
        return line.strip() + "\n" + self.body

    def captured(self) -> list[str]:
        """The name that %%capture stores."""
        words = [word for word in self.line.split() if word.isidentifier()]
        return words[:1] if self.name == "capture" and self.is_cell else []

    def inspected(self) -> str:
        """The name in %pinfo name.attribute."""
        word = self.line.partition(".")[0].strip()
        return word if self.name in ("pinfo", "pinfo2") and word.isidentifier() else ""


def embedded(text: str) -> list[str]:
    """The names in a command's {name} and $name."""
    return re.findall(r"(?<![{\w])(?:\{|\$\{?)([A-Za-z_]\w*)", text)


def automagic(text: str, magics: Any, taken: Any) -> str:
    """A cell of one line that calls a magic without %, as that magic, or else the text."""
    line = text.strip()
    word = re.match(r"[A-Za-z_]\w*(?=\s|$)", line)
    if "\n" in line or word is None or word.group() not in magics or word.group() in taken:
        return text
    rest = line[word.end() :].strip()
    if rest[:1] in ("=", ",") or re.match(r"(in|is|and|or|not|if)\b", rest):
        return text
    return "%" + line
