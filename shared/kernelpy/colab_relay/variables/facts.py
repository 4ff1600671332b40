"""Facts about an object that are known without running its code."""

from __future__ import annotations

import collections
import sys
from typing import Any

from ..safe import (
    base_of,
    class_name,
    is_any,
    is_library_frame,
    is_library_index,
    known,
    module_dict,
    text,
)

PLAIN = (type(None), bool, int, float, complex, slice)
SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset, collections.deque, range)


class Facts:
    """The size, shape, dtype and bytes of an object, each None if its type does not have them."""

    def __init__(self, value: Any) -> None:
        self.size: int | None = None
        self.shape: list[int] | None = None
        self.dtype: str | None = None
        self.bytes: int | None = None
        cls = type(value)
        try:
            base = base_of(cls, SIZED)
            if base is not None:
                self.size = base.__len__(value)
            if is_any(cls, PLAIN) or is_any(cls, SIZED):
                self.bytes = sys.getsizeof(value)
            for base in known("numpy", "ndarray", "generic"):
                if type.__subclasscheck__(base, cls):
                    self.of_numpy(base, value)
            if is_any(cls, known("torch", "Tensor")) or is_any(
                cls, known("torch.nn.parameter", "Parameter")
            ):
                self.of_torch(module_dict("torch")["Tensor"], value)
            if is_any(cls, known("pandas", "DataFrame", "Series")):
                self.of_pandas(value)
            elif base_of(cls, known("pandas", "Index")) is not None:
                self.of_index(value)
        except Exception:  # another version of a library: what was found so far counts
            pass

    def of_numpy(self, base: Any, value: Any) -> None:
        shape = base.shape.__get__(value)
        self.shape = [int(n) for n in shape]
        self.size = int(shape[0]) if shape else None
        self.dtype = text(str(base.dtype.__get__(value)))
        self.bytes = int(base.nbytes.__get__(value))

    def of_torch(self, base: Any, value: Any) -> None:
        self.shape = [int(n) for n in base.shape.__get__(value)]
        self.size = self.shape[0] if self.shape else None
        self.dtype = text(str(base.dtype.__get__(value)))
        elements = 1
        for n in self.shape:
            elements *= n
        self.bytes = elements * int(base.element_size(value))

    def of_pandas(self, value: Any) -> None:
        """Counts the bytes of the columns' buffers, not of the objects that they refer to."""
        if not is_library_frame(value):
            return
        self.shape = [int(n) for n in value.shape]
        self.size = self.shape[0]
        if len(self.shape) == 1:
            self.dtype = text(str(value.dtype))
        self.bytes = sum(int(a.nbytes) for a in value._mgr.arrays)

    def of_index(self, value: Any) -> None:
        if not is_library_index(value):
            return
        self.shape = [int(n) for n in value.shape]
        self.size = self.shape[0]
        self.dtype = text(str(value.dtype))


def describe(name: str, value: Any) -> dict[str, Any]:
    facts = Facts(value)
    return {
        "name": text(name),
        "type": class_name(type(value)),
        "size": facts.size,
        "shape": facts.shape,
        "dtype": facts.dtype,
        "bytes": facts.bytes,
    }
