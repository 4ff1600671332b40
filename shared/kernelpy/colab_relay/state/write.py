"""Writes the data file. Each variable is a separate pickle, so that one that fails does not
affect the others. All pickles share one memo, so that shared objects stay shared.

Large buffers are written directly from memory into the file, outside of the pickle (protocol 5),
so that saving an array needs no copy of it. The index follows as JSON, then its length.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import struct
import tempfile
import time
from typing import TYPE_CHECKING, Any

from ..safe import class_name
from . import rebuild
from .arrays import Sharing, original
from .read import FIRST_LINE
from .reasons import CannotSave
from .reduce import reduce

if TYPE_CHECKING:
    from .read import Segment

NOT_LIBRARIES = ("__main__", "builtins", __name__.partition(".")[0], rebuild.__name__)
OUT_OF_BAND = 64 << 10  # from so many bytes on, a buffer is written outside of the pickle
SLICE = 16 << 20
IN_MEMORY = 8 << 20  # bytes of a pickle; a longer one is in a temporary file
CHECKED_SIZE = 1 << 20  # from so many bytes on, the free space is checked first
MIN_FREE = 64 << 20  # bytes of disk that a save leaves free


def choose_pickler() -> tuple[str, Any]:
    """The name and the class of the pickler: of dill, cloudpickle or pickle, the first that is
    installed."""
    try:
        import dill

        return "dill", dill.Pickler
    except Exception:
        pass
    try:
        import cloudpickle

        return "cloudpickle", cloudpickle.Pickler
    except Exception:
        return "pickle", pickle.Pickler


class Alias:
    """Replaces an object that the restoring kernel has itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        return rebuild.kernel_object, (self.name,)


class File:
    """The data file with its digest. It can go back to the start of a variable."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = open(path, "wb", buffering=0)
        self.size, self.digest = 0, hashlib.sha256()

    def write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), SLICE):
            piece = view[start : start + SLICE]
            while len(piece):
                done = self.file.write(piece)
                self.digest.update(piece[:done])
                self.size += done
                piece = piece[done:]

    def mark(self) -> tuple[int, Any]:
        return self.size, self.digest.copy()

    def return_to(self, mark: tuple[int, Any]) -> None:
        self.size, digest = mark
        self.digest = digest.copy()
        self.file.seek(self.size)
        self.file.truncate()


class OutOfTime(BaseException):
    """Saving took longer than allowed. It does not mean that one variable can't be saved."""


class Bounds:
    """The most bytes of the file and the most seconds of the save; None means no bound."""

    def __init__(self, most: int | None = None, seconds: float | None = None) -> None:
        self.most = most
        self.end = None if seconds is None else time.monotonic() + seconds

    def check(self, size: int) -> None:
        if self.most is not None and size > self.most:
            raise CannotSave("together they are over %d MB" % (self.most >> 20))
        if self.end is not None and time.monotonic() > self.end:
            raise OutOfTime


class Stream:
    """A temporary file that a pickler writes to, within the bounds."""

    def __init__(self, file: Any, saver: Saver) -> None:
        self.file, self.saver = file, saver

    def write(self, data: Any) -> int:
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        self.saver.bounds.check(self.saver.out.size + self.file.tell() + size)
        return self.file.write(data)


class Saver:
    """Writes one value after the other. save.py chooses the values."""

    def __init__(self, path: str, values: list[Any], bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self.out = File(path)
        self.kind, self.base = choose_pickler()
        self.plain = self.kind == "pickle"
        self.sharing = Sharing(values)
        self.packages: set[str] = set()
        self.sources: set[str] = set()
        self.storages: dict[Any, Any] = {}
        self.segments: list[tuple[Segment, list[Any]]] = []
        self.buffers: list[list[int]] = []
        self.at: type | None = None  # the class of the object being written
        self.needs_trial = False
        self.computed = False  # it has tensors that torch computed from others, for backward()
        self.without_graph: list[str] = []
        self.for_trial: list[Segment] = []  # segments that may fail to load
        self.out.write(FIRST_LINE)
        self.start({})

    def start(self, memo: dict[int, Any]) -> None:
        """Continues with a new pickler that has this memo."""
        saver, base = self, self.base
        below = getattr(base, "reducer_override", None)

        class Pickler(base):  # type: ignore[misc, valid-type]
            def reducer_override(self, obj: Any) -> Any:
                reduced = reduce(saver, obj)
                if reduced is NotImplemented and below is not None:
                    return below(self, obj)
                return reduced

            def memoize(self, obj: Any) -> None:
                """A pickler written in Python treats a buffer as bytes. Short bytes are one shared
                object, which may be in the memo already."""
                if type(obj) is bytes and id(obj) in self.memo:
                    obj = object()
                super().memoize(obj)

        self.stream = tempfile.SpooledTemporaryFile(IN_MEMORY, dir=os.path.dirname(self.out.path))
        self.pickler = Pickler(Stream(self.stream, self), 5, buffer_callback=self.take_buffer)
        self.pickler.memo = memo

    def take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Returns whether a buffer belongs in the pickle. If not, it is written to the file now."""
        with buffer.raw() as data:
            if data.nbytes < OUT_OF_BAND:
                return True
            self.check_space(data.nbytes)
            self.bounds.check(self.out.size + data.nbytes)
            self.buffers.append([self.out.size, data.nbytes])
            self.out.write(data)
        return False

    def check_space(self, size: int) -> None:
        if size < CHECKED_SIZE:
            return
        free = shutil.disk_usage(os.path.dirname(self.out.path)).free
        if size > free - MIN_FREE:
            raise CannotSave(
                "it takes %d MB, and the VM's disk has %d MB free" % (size >> 20, free >> 20)
            )

    def doing(self) -> str:
        """What is being done, for the reason of an exception without a message."""
        return "writing it" if self.at is None else "writing a %s in it" % class_name(self.at)

    def uses(self, module: str) -> None:
        package = module.partition(".")[0]
        if package not in NOT_LIBRARIES:
            self.packages.add(package)

    def add_source(self, filename: str) -> None:
        self.sources.add(filename)

    def alias(self, objects: dict[str, Any]) -> None:
        """References to one of these objects are restored as the kernel's own object."""
        for name, obj in objects.items():
            memo = self.pickler.memo.copy()
            if id(obj) in memo:
                continue
            mark = Alias(name)
            self.add({"kernel": name}, mark)
            memo = self.pickler.memo.copy()
            number, _ = memo.pop(id(mark))
            memo[id(obj)] = (number, obj)
            self.pickler.memo = memo

    def add(self, label: dict[str, Any], value: Any) -> int:
        """Writes one value and returns its bytes in the file. If that fails, the file is as before,
        and the error is raised."""
        mark, first = self.out.mark(), [value]  # the list is the first object in the memo
        self.buffers, self.at, self.needs_trial, self.computed = [], None, False, False
        self.stream.seek(0)
        self.stream.truncate()
        try:
            self.pickler.dump(first)
            begin, length = self.out.size, self.stream.tell()
            self.stream.seek(0)
            for piece in iter(lambda: self.stream.read(SLICE), b""):
                self.out.write(piece)
        except BaseException:
            self.forget(mark, first)
            raise
        segment = dict(label, stream=[begin, length], buffers=self.buffers)
        self.segments.append((segment, first))
        if self.computed and "name" in segment:
            self.without_graph.append(segment["name"])
        if self.needs_trial and "name" in segment:
            self.for_trial.append(segment)
        return self.out.size - mark[0]

    def forget(self, mark: tuple[int, Any], first: list[Any]) -> None:
        memo = self.pickler.memo.copy()
        if id(first) in memo:
            known = memo[id(first)][0]
            memo = {key: entry for key, entry in memo.items() if entry[0] < known}
        self.out.return_to(mark)
        self.stream.close()
        self.start(memo)

    def finish(self, index: dict[str, Any]) -> tuple[int, str]:
        """Writes the index. Returns the file's size and digest."""
        memo = self.pickler.memo.copy()
        for segment, first in self.segments:
            segment["first"] = memo[id(first)][0]
        segments = [segment for segment, _ in self.segments]
        index = dict(index, segments=segments, memorised=len(memo))
        data = json.dumps(index).encode("ascii")
        self.out.write(data)
        self.out.write(struct.pack("<Q", len(data)))
        self.out.file.close()
        self.stream.close()
        self.known = {number: original(obj) for number, obj in memo.values()}
        return self.out.size, self.out.digest.hexdigest()
