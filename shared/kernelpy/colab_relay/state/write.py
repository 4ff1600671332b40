"""The data file: one pickle a variable, all of one memo, so that what variables share stays
shared, and one that fails takes nothing with it.

Large buffers go straight from memory into the file, past the pickle (protocol 5), so that
saving an array needs no copy of it. At the end comes the index as JSON, then its length.
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
from .reasons import Unkeepable
from .reduce import reduce

if TYPE_CHECKING:
    from .read import Segment

NOT_LIBRARIES = ("__main__", "builtins", __name__.partition(".")[0], rebuild.__name__)
OUT_OF_BAND = 64 << 10  # bytes of a buffer, from where on it goes past the pickle
SLICE = 16 << 20
IN_MEMORY = 8 << 20  # of a pickle, before it goes to a temporary file
ROOM_ASKED = 1 << 20  # bytes of one thing, from where on the disk is asked
ROOM_LEFT = 64 << 20  # bytes of disk that a save leaves free


def choose_pickler() -> tuple[str, Any]:
    """dill when it is there, else cloudpickle, else pickle: its name and its class."""
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
    """Written in the place of an object that is the kernel's own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        return rebuild.kernel_object, (self.name,)


class File:
    """The data file, which knows its digest and can go back to where a variable began."""

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

    def back_to(self, mark: tuple[int, Any]) -> None:
        self.size, digest = mark
        self.digest = digest.copy()
        self.file.seek(self.size)
        self.file.truncate()


class TooLong(BaseException):
    """Saving took longer than it may; no variable is to blame."""


class Bounds:
    """How large a file may become, and when it must be done; none by default."""

    def __init__(self, most: int | None = None, seconds: float | None = None) -> None:
        self.most = most
        self.end = None if seconds is None else time.monotonic() + seconds

    def check(self, size: int) -> None:
        if self.most is not None and size > self.most:
            raise Unkeepable("all together they are over %d MB" % (self.most >> 20))
        if self.end is not None and time.monotonic() > self.end:
            raise TooLong


class Stream:
    """What a pickler writes to: a temporary file that stays within the bounds."""

    def __init__(self, file: Any, saver: Saver) -> None:
        self.file, self.saver = file, saver

    def write(self, data: Any) -> int:
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        self.saver.bounds.check(self.saver.out.size + self.file.tell() + size)
        return self.file.write(data)


class Saver:
    """Writes one value after the other; see save.py for what it is given."""

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
        self.doubted = False
        self.doubtful: list[Segment] = []  # segments that hold what may not load
        self.out.write(FIRST_LINE)
        self.start({})

    def start(self, memo: dict[int, Any]) -> None:
        """Begins with a new pickler that knows what memo holds."""
        saver, base = self, self.base
        below = getattr(base, "reducer_override", None)

        class Pickler(base):  # type: ignore[misc, valid-type]
            def reducer_override(self, obj: Any) -> Any:
                reduced = reduce(saver, obj)
                if reduced is NotImplemented and below is not None:
                    return below(self, obj)
                return reduced

            def memoize(self, obj: Any) -> None:
                """A pickler made of Python takes a buffer as bytes, and of short bytes there
                is but one object, which may be known already."""
                if type(obj) is bytes and id(obj) in self.memo:
                    obj = object()
                super().memoize(obj)

        self.stream = tempfile.SpooledTemporaryFile(IN_MEMORY, dir=os.path.dirname(self.out.path))
        self.pickler = Pickler(Stream(self.stream, self), 5, buffer_callback=self.take_buffer)
        self.pickler.memo = memo

    def take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether a buffer stays in the pickle; else it is written here and now."""
        with buffer.raw() as data:
            if data.nbytes < OUT_OF_BAND:
                return True
            self.check_room(data.nbytes)
            self.bounds.check(self.out.size + data.nbytes)
            self.buffers.append([self.out.size, data.nbytes])
            self.out.write(data)
        return False

    def check_room(self, size: int) -> None:
        if size < ROOM_ASKED:
            return
        free = shutil.disk_usage(os.path.dirname(self.out.path)).free
        if size > free - ROOM_LEFT:
            raise Unkeepable(
                "it takes %d MB, and the VM's disk has %d MB free" % (size >> 20, free >> 20)
            )

    def doing(self) -> str:
        """Words for what was done when an exception that says nothing came."""
        return "writing it" if self.at is None else "writing a %s in it" % class_name(self.at)

    def uses(self, module: str) -> None:
        package = module.partition(".")[0]
        if package not in NOT_LIBRARIES:
            self.packages.add(package)

    def note_source(self, filename: str) -> None:
        self.sources.add(filename)

    def alias(self, objects: dict[str, Any]) -> None:
        """Whoever refers to one of these objects gets the restoring kernel's own."""
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
        """Writes one value and gives its bytes. When it can't be written, all is as before
        and the reason is raised."""
        mark, first = self.out.mark(), [value]  # the list is the first thing memorised
        self.buffers, self.at, self.doubted = [], None, False
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
        if self.doubted and "name" in segment:
            self.doubtful.append(segment)
        return self.out.size - mark[0]

    def forget(self, mark: tuple[int, Any], first: list[Any]) -> None:
        memo = self.pickler.memo.copy()
        if id(first) in memo:
            known = memo[id(first)][0]
            memo = {key: entry for key, entry in memo.items() if entry[0] < known}
        self.out.back_to(mark)
        self.stream.close()
        self.start(memo)

    def finish(self, index: dict[str, Any]) -> tuple[int, str]:
        """Writes the index and gives the file's size and digest."""
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
