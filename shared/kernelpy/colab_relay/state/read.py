"""Reads the file that write.py wrote: one value after the other, all with one memo."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import pickletools
import struct
from pickle import MEMOIZE, NEXT_BUFFER, NONE, POP, STOP
from typing import TYPE_CHECKING, Any, Iterator, cast

from .reasons import Damaged
from .salvage import salvage, salvager

if TYPE_CHECKING:
    Segment = dict[str, Any]  # one value in the file: its name or kind, and where its parts are

FIRST_LINE = b"colab-relay kernel state 1\n"  # of the data file
SLICE = 4 << 20
MAX_INDEX = 256 << 20  # bytes


class Piece:
    """A part of a file, as a file that an unpickler can read."""

    def __init__(self, file: Any) -> None:
        self.file, self.left = file, 0

    def begin(self, offset: int, length: int) -> None:
        self.file.seek(offset)
        self.left = length

    def read(self, size: int = -1) -> bytes:
        size = self.left if size < 0 else min(size, self.left)
        data = self.file.read(size)
        self.left -= len(data)
        return data

    def readline(self) -> bytes:
        data = self.file.readline(self.left)
        self.left -= len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")[: self.left]
        size = self.file.readinto(view)
        self.left -= size
        return size


class Buffers:
    """The buffers that the pickle refers to, in order."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.places: list[tuple[int, int]] = []  # of the segment being loaded: offset and length
        self.given: Iterator[Any] = iter(())  # objects to return instead; see preload

    def __iter__(self) -> Buffers:
        return self

    def __next__(self) -> Any:
        for obj in self.given:
            return obj
        if not self.places:
            raise StopIteration
        offset, length = self.places.pop(0)
        data, back = bytearray(length), self.file.tell()
        self.file.seek(offset)
        if self.file.readinto(data) != length:
            raise Damaged("the file is incomplete")
        self.file.seek(back)
        return data


class Reader:
    """Opens a data file. Nothing is unpickled unless the digest is right. digest is None for a
    file that this process has just written."""

    def __init__(self, path: str, size: int, digest: str | None) -> None:
        self.file = open(path, "rb")
        self.check(size, digest)
        self.file.seek(size - 8)
        (length,) = struct.unpack("<Q", self.file.read(8))
        if length > min(MAX_INDEX, size - 8 - len(FIRST_LINE)):
            raise Damaged("its index is too long")
        self.file.seek(size - 8 - length)
        self.index = json.loads(self.file.read(length).decode("ascii"))
        self.piece, self.buffers = Piece(self.file), Buffers(self.file)
        self.lost: set[int] = set()  # memo numbers of objects that could not be restored
        self.unpickler = self.make()

    def check(self, size: int, digest: str | None) -> None:
        if os.fstat(self.file.fileno()).st_size != size:
            raise Damaged("it does not have the recorded size")
        if self.file.read(len(FIRST_LINE)) != FIRST_LINE:
            raise Damaged("it is not a kernel state that this release can read")
        if digest is None:
            return
        found = hashlib.sha256(FIRST_LINE)
        for piece in iter(lambda: self.file.read(SLICE), b""):
            found.update(piece)
        if found.hexdigest() != digest:
            raise Damaged("its SHA-256 is not the recorded one")

    def make(self) -> Any:
        if self.index["pickler"] == "dill":
            try:
                import dill

                return dill.Unpickler(self.piece, ignore=True, buffers=self.buffers)
            except Exception:  # pickle can read most of it
                pass
        return pickle.Unpickler(self.piece, buffers=self.buffers)

    def close(self) -> None:
        self.file.close()

    def load(self, segment: Segment) -> Any:
        """The value of one segment. A segment that fails affects only those that share a broken
        object with it."""
        try:
            self.refuse_lost(segment)
            return self.read(segment)
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.recover(segment)
            raise

    def read(self, segment: Segment) -> Any:
        self.begin(segment)
        return self.unpickler.load()[0]

    def begin(self, segment: Segment) -> None:
        self.piece.begin(*segment["stream"])
        self.buffers.places = [tuple(place) for place in segment["buffers"]]

    def refuse_lost(self, segment: Segment) -> None:
        """Raises if the segment refers to a lost object. An unpickler would use the placeholder."""
        if not self.lost:
            return
        self.piece.begin(*segment["stream"])
        for opcode, number, _ in pickletools.genops(cast(Any, self.piece)):
            if opcode.name in ("GET", "BINGET", "LONG_BINGET"):
                if number in self.lost:
                    raise Damaged("it shares an object with a variable that can't be restored")

    def recover(self, segment: Segment) -> None:
        """Continues after a failed segment with a new unpickler, because memo numbers must be the
        same as in the save. Its memo has the objects from before the segment, the intact objects
        of the segment, and None for the broken ones."""
        after = [s["first"] for s in self.index["segments"] if s["first"] > segment["first"]]
        first, end = segment["first"], min(after, default=self.index["memorised"])
        memo = self.unpickler.memo.copy()
        memo = {number: memo[number] for number in range(first)}
        try:
            memo, lost = self.salvage(segment, dict(memo))
        except KeyboardInterrupt:
            raise
        except BaseException:  # a pickle that can't be read to its end
            lost = set(range(first, end))
        self.lost.update(lost)
        self.preload([None if i in self.lost else memo.get(i) for i in range(end)])

    def salvage(self, segment: Segment, memo: dict[int, Any]) -> tuple[dict[int, Any], set[int]]:
        base = type(self.unpickler)
        base = salvager(base if issubclass(base, pickle._Unpickler) else pickle._Unpickler)
        self.begin(segment)
        return salvage(base(self.piece, buffers=self.buffers), memo, self.lost)

    def preload(self, known: list[Any]) -> None:
        """Continues with a new unpickler whose memo has these objects. An unpickler written in C
        accepts objects only as buffers."""
        self.buffers.given = iter(known)
        self.piece.file = io.BytesIO(
            b"\x80\x05" + len(known) * (NEXT_BUFFER + MEMOIZE + POP) + NONE + STOP
        )
        self.piece.left = len(self.piece.file.getbuffer())
        self.unpickler = self.make()
        self.unpickler.load()
        self.piece.file = self.file
