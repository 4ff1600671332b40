"""Previews of objects, within bounds and without running their code."""

from __future__ import annotations

import collections
import datetime
import decimal
import types
from typing import Any, Iterable, Tuple

from ..safe import (
    base_of,
    belongs_to,
    class_name,
    class_title,
    is_any,
    is_library_array,
    is_library_frame,
    is_library_index,
    known,
    module_dict,
    text,
)
from .facts import Facts

MAX_PREVIEW = 4096  # bytes of UTF-8
MAX_DEPTH = 6  # containers in containers
MAX_ITEMS = 200  # of one container
MAX_NESTED_TEXT = 200  # characters of a string in a container
MAX_ELEMENTS = 500  # of one array
MAX_COLUMNS = 40  # of one frame
MAX_BITS = 2000  # of an integer: Python may refuse to print more than 640 digits

EXACT: tuple[Any, ...] = (type(None), bool, type(...), type(NotImplemented), range)
EXACT += (datetime.date, datetime.timedelta, decimal.Decimal)
Brackets = Tuple[Tuple[Any, str, str], ...]
TEXTS = (str, bytes, bytearray)
SEQUENCES: Brackets = ((list, "[", "]"), (tuple, "(", ")"), (collections.deque, "deque([", "])"))
SETS: Brackets = ((set, "{", "}"), (frozenset, "frozenset({", "})"))


def count(number: int, noun: str) -> str:
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


class Full(Exception):
    """The preview has reached its maximum length."""


class Preview:
    """The preview of one object, of at most MAX_PREVIEW bytes. It reads only what it shows."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.left = MAX_PREVIEW - len("…".encode())
        self.path: list[int] = []  # ids of the containers around, against cycles

    def of(self, value: Any) -> str:
        try:
            self.value(value)
        except Full:
            self.parts.append("…")
        except Exception:  # another version of a library, or a dict that a thread changes
            self.parts.append("…")
        return "".join(self.parts)

    def put(self, piece: str) -> None:
        piece = text(piece)
        encoded = piece.encode()
        if len(encoded) > self.left:
            self.parts.append(encoded[: self.left].decode("utf-8", "ignore"))
            raise Full
        self.left -= len(encoded)
        self.parts.append(piece)

    def value(self, value: Any) -> None:
        cls = type(value)
        if id(value) in self.path or len(self.path) >= MAX_DEPTH:
            self.put("…")
            return
        self.path.append(id(value))
        try:
            if not self.library(cls, value) and not self.atom(cls, value):
                self.container(cls, value)
        finally:
            self.path.pop()

    def atom(self, cls: Any, value: Any) -> bool:
        if is_any(cls, EXACT):
            self.put(cls.__repr__(value))
        elif base_of(cls, TEXTS) is not None:
            self.text(cls, value)
        elif type.__subclasscheck__(int, cls):
            self.title(cls, int)
            bits = int.bit_length(value)
            self.put(int.__repr__(value) if bits <= MAX_BITS else "<%d bits>" % bits)
        elif base_of(cls, (float, complex)) is not None:
            base = base_of(cls, (float, complex))
            self.title(cls, base)
            self.put(base.__repr__(value))
        elif cls is datetime.datetime:
            self.moment(value)
        elif cls is types.FunctionType:
            code = value.__code__
            arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            self.put("<function " + text(value.__qualname__) + "(" + ", ".join(arguments) + ")>")
        elif type.__subclasscheck__(type, cls):
            self.put("<class " + class_title(value) + ">")
        else:
            return False
        return True

    def text(self, cls: type, value: Any) -> None:
        base = base_of(cls, TEXTS)
        self.title(cls, base)
        most = MAX_PREVIEW if len(self.path) == 1 else MAX_NESTED_TEXT
        self.put(base.__repr__(base.__getitem__(value, slice(0, most))))
        if base.__len__(value) > most:
            self.put("…")

    def moment(self, value: Any) -> None:
        """Shows only the class of the time zone, which may be a user-defined object."""
        zone = datetime.datetime.tzinfo.__get__(value)
        self.put(repr(value.replace(tzinfo=None)))
        if zone is not None:
            self.put(" in " + class_title(type(zone)))

    def title(self, cls: type, base: type) -> None:
        if cls is not base:
            self.put("<" + class_title(cls) + " object> ")

    def container(self, cls: type, value: Any) -> None:
        for base, start, end in SEQUENCES:
            if type.__subclasscheck__(base, cls):
                self.title(cls, base)
                single = base is tuple and tuple.__len__(value) == 1
                return self.items(start, base.__iter__(value), ",)" if single else end)
        for base, start, end in SETS:
            if type.__subclasscheck__(base, cls):
                self.title(cls, base)
                return self.items(start, base.__iter__(value), end)
        if type.__subclasscheck__(dict, cls):
            self.title(cls, dict)
            return self.pairs(dict.items(value))
        self.put("<" + class_title(cls) + " object>")

    def items(self, start: str, items: Iterable[Any], end: str) -> None:
        self.put(start)
        for n, item in enumerate(items):
            if n:
                self.put(", ")
            if n == MAX_ITEMS:
                self.put("…")
                break
            self.value(item)
        self.put(end)

    def pairs(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        self.put("{")
        for n, (key, value) in enumerate(pairs):
            if n:
                self.put(", ")
            if n == MAX_ITEMS:
                self.put("…")
                break
            self.value(key)
            self.put(": ")
            self.value(value)
        self.put("}")

    def library(self, cls: Any, value: Any) -> bool:
        """Writes arrays, frames and scalars of known libraries. Returns False for other objects."""
        if is_any(cls, known("numpy", "ndarray")):
            self.array(cls, value)
        elif base_of(cls, known("numpy", "generic")) and belongs_to(cls, "numpy"):
            self.put(class_title(cls) + " ")
            if cls.dtype.__get__(value).hasobject:
                return True
            item = cls.item(value)
            self.put(repr(item)) if type(item) is cls else self.value(item)
        elif is_any(cls, known("pandas", "DataFrame")):
            self.frame(value)
        elif is_any(cls, known("pandas", "Series")):
            self.put(class_name(cls) + " ")
            self.column(value._values)
        elif is_any(cls, known("pandas", "RangeIndex")):
            self.put("RangeIndex " + repr(value._range))
        elif is_any(cls, known("pandas", "Index")) and is_library_index(value):
            self.put(class_name(cls) + " ")
            self.column(value._values)
        elif is_any(cls, known("pandas", "Timestamp", "Timedelta")):
            self.put(cls.isoformat(value))
        elif value is module_dict("pandas").get("NA", self):
            self.put("NA")
        elif value is module_dict("pandas").get("NaT", self):
            self.put("NaT")
        elif is_any(cls, known("torch", "Tensor")):
            facts = Facts(value)
            self.put("tensor(shape=%s, dtype=%s)" % (facts.shape, facts.dtype))
        else:
            return False
        return True

    def array(self, cls: Any, value: Any) -> None:
        """Writes the first items along each dimension of an array."""
        shape, dtype = cls.shape.__get__(value), cls.dtype.__get__(value)
        self.put("array(shape=%s, dtype=%s) " % (tuple(shape), text(str(dtype))))
        edge = max(1, int(MAX_ELEMENTS ** (1 / max(1, len(shape)))))
        corner = cls.__getitem__(value, tuple(slice(0, edge) for _ in shape)) if shape else value
        if dtype.kind in "mM":  # tolist would give plain numbers of nanoseconds
            corner = cls.astype(corner, str)
        self.value(cls.tolist(corner))
        if any(n > edge for n in shape):
            self.put(" …")

    def frame(self, frame: Any) -> None:
        """Writes a line for each column: its name, dtype and first values."""
        if not is_library_frame(frame):
            self.put("<pandas.DataFrame object>")
            return
        rows, columns = frame.shape
        self.put("DataFrame of %s, %s" % (count(rows, "row"), count(columns, "column")))
        for n in range(columns):
            if n == MAX_COLUMNS:
                self.put("\n…")
                break
            self.put("\n")
            self.value(frame.columns[n])
            self.put(": ")
            self.column(frame._mgr.iget_values(n))

    def column(self, array: Any) -> None:
        if not is_library_array(array):
            self.put("<" + class_title(type(array)) + " object>")
            return
        self.put(text(str(array.dtype)) + " ")
        few = 5
        head = array[:few]
        is_numpy = is_any(type(head), known("numpy", "ndarray"))
        self.items("", head.tolist() if is_numpy else list(head), "")
        if len(array) > few:
            self.put(", …")
