"""A stand-in for torch, which is too large to install for a test: numpy behind those calls of
torch 2 that pickling a tensor makes, with the same signatures, and a GPU where TORCH_GPU is
set. That the real torch 2.5 behaves so on the CPU was tried by hand."""

import os
import types
from collections import OrderedDict

import numpy

from . import storage
from .storage import TypedStorage, UntypedStorage

__version__ = "2.0.0+standin"


class dtype:
    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return self.name  # a global of torch, as the real one's


uint8, float32 = dtype("uint8"), dtype("float32")

cuda = types.SimpleNamespace(
    is_available=lambda: "TORCH_GPU" in os.environ,
    device_count=lambda: int(os.environ.get("TORCH_GPU", 0)),
)


class Tensor:
    is_leaf, grad = True, None

    def __init__(self, memory, kind, device, offset=0, size=None):
        self.memory, self.dtype, self.device = memory, kind, device
        self.offset = offset
        self.size = size if size is not None else memory.nbytes // numpy.dtype(kind.name).itemsize

    def untyped_storage(self):
        return UntypedStorage(self.memory, self.device)  # a new object each time

    def set_(self, source):
        return Tensor(source.memory, self.dtype, source.device)

    def values(self):
        return self.memory.view(self.dtype.name)[self.offset : self.offset + self.size]

    def __getitem__(self, piece):
        return Tensor(self.memory, self.dtype, self.device, piece.start, piece.stop - piece.start)

    def cpu(self):
        return self.to("cpu")

    def numpy(self):
        if self.device.type != "cpu":
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")
        return self.values()

    def to(self, device):
        device = storage.device(device)
        if device.type == "cuda" and not cuda.is_available():
            raise RuntimeError("Found no NVIDIA driver on your system.")
        if device.type == self.device.type:
            return self
        return Tensor(self.memory.copy(), self.dtype, device, self.offset, self.size)

    def __reduce_ex__(self, protocol):
        typed = TypedStorage(wrap_storage=self.untyped_storage(), dtype=self.dtype, _internal=True)
        args = (typed, self.offset, (self.size,), (1,), False, OrderedDict())
        return _rebuild_tensor_v2, args


def _rebuild_tensor_v2(typed, offset, size, stride, requires_grad, hooks):
    inner = typed._untyped_storage
    return Tensor(inner.memory, typed.dtype, inner.device, offset, size[0])


def empty(size, dtype, device="cpu"):
    return Tensor(numpy.empty(0, "uint8"), dtype, storage.device(device))


def frombuffer(buffer, dtype):
    return Tensor(numpy.frombuffer(buffer, "uint8"), dtype, storage.device("cpu"))


def arange(n, device="cpu"):
    memory = numpy.arange(n, dtype="float32").view("uint8")
    return Tensor(memory, float32, storage.device("cpu")).to(device)
