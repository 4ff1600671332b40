class device:
    def __new__(cls, name):
        if isinstance(name, cls):
            return name
        self = object.__new__(cls)
        self.type, _, index = name.partition(":")
        self.index = int(index or 0) if self.type == "cuda" else None
        return self

    def __str__(self):
        return self.type if self.index is None else "%s:%d" % (self.type, self.index)


class UntypedStorage:
    def __init__(self, memory, device):
        self.memory, self.device = memory, device

    def nbytes(self):
        return self.memory.nbytes

    def data_ptr(self):
        return self.memory.__array_interface__["data"][0]

    def __reduce__(self):
        raise AssertionError("a storage was pickled torch's own way, which needs the GPU")


class TypedStorage:
    def __init__(self, wrap_storage=None, dtype=None, device=None, _internal=False):
        self._untyped_storage, self.dtype = wrap_storage, dtype

    def __reduce__(self):
        raise AssertionError("a storage was pickled torch's own way, which needs the GPU")
