"""Facts about the cells of a notebook, from their sources: what they read and write. The sources
are parsed and never run. relay/dataflow reads the answer and knows what its fields mean."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import time
import zlib
from typing import Any, Callable

from IPython.core.getipython import get_ipython
from IPython.core.inputtransformer2 import TransformerManager

from .demands import Demands
from .functions import Function
from .magics import automagic
from .reader import OutOfTime
from .statements import Reader
from .use import TooMuch, filled, names, plain_origin

MAX_CELLS = 10_000
MAX_CHARS = 4 << 20  # characters of all sources
MAX_ANSWER = 3 << 20  # characters of all facts as JSON
MAX_SECONDS = 20.0  # for all cells

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


def of_packed(packed: str) -> list[dict[str, Any]]:
    """The facts of sources, which are a JSON list as base64 of zlib."""
    unpack = zlib.decompressobj()
    text = unpack.decompress(base64.b64decode(packed), 8 * MAX_CHARS)
    sources = json.loads(text.decode("utf-8", "surrogatepass"))
    return facts(sources, *known_to(get_ipython()))


def known_to(shell: Any) -> tuple[set[str], set[str]]:
    """The names of the shell's line magics, and those that it would rather take as variables."""
    if shell is None:
        return set(), set()
    found = shell.magics_manager.magics.get("line", {})
    return {str(name) for name in found}, {n for n in dict.keys(shell.user_ns) if type(n) is str}


def facts(
    sources: list[str], magics: Any = (), variables: Any = (), seconds: float = MAX_SECONDS
) -> list[dict[str, Any]]:
    """The facts of each source. Names that are variables, or that a cell stores, are no magics."""
    if len(sources) > MAX_CELLS or sum(map(len, sources)) > MAX_CHARS:
        return [passing(source, "the notebook is too long") for source in sources[:MAX_CELLS]]
    deadline, left = time.monotonic() + seconds, MAX_ANSWER
    # Its own transformer, because the shell's may run functions of the user.
    transform = TransformerManager().transform_cell
    found, taken = [], set(variables)
    for source in sources:
        facts_of = read(automagic(source, magics, taken), source, transform, deadline)
        taken.update(facts_of.get("may_store", ()))
        left -= len(json.dumps(facts_of))
        found.append(facts_of if left > 0 else passing(source, "the notebook has too many names"))
    return found


def read(
    text: str, source: str, transform: Callable[[str], str], deadline: float
) -> dict[str, Any]:
    """The facts of one cell."""
    try:
        tree = ast.parse(transform(text))
        reader = Reader(transform, deadline)
        reader.body(tree)
        reader.settle()
        return dict(plain(reader), **demanded(tree), digest=digest(ast.dump(tree)))
    except UNREADABLE as error:
        return unknown(source, problem(error))
    except OutOfTime:
        return passing(source, "reading the cells took too long")
    except TooMuch:
        return unknown(source, "the cell has too many names")


def plain(reader: Reader) -> dict[str, Any]:
    use = reader.use
    for call in use.calls.values():
        call.bound = (call.bound or set()) & use.may_store
    found = use.plain()
    found.update(
        stores=names(reader.stores()),
        imports=names(reader.imports & use.may_store),
        functions={name: merged(reader.functions[name]) for name in names(reader.functions)},
        origins=filled(
            {name: plain_origin(reader.origins[name]) for name in names(reader.origins)}
        ),
    )
    return filled(found)


def demanded(tree: ast.Module) -> dict[str, Any]:
    demands = Demands(tree)
    return filled(
        {"page_calls": names(demands.page_calls), "accelerators": names(demands.accelerators)}
    )


def merged(functions: list[Function]) -> dict[str, Any]:
    """What any of the functions of one name may do."""
    first = functions[0]
    for other in functions[1:]:
        first.merge(other)
    return first.plain()


def unknown(source: str, why: str) -> dict[str, Any]:
    return {"digest": digest("text " + source), "problem": why}


def passing(source: str, why: str) -> dict[str, Any]:
    """The reason lies in the whole call: another one may know more of the cell."""
    return dict(unknown(source, why), passing=True)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def problem(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return "its code has a syntax error"
    if isinstance(error, (RecursionError, MemoryError)):
        return "its code is nested too deeply"
    return "its code can't be parsed"
