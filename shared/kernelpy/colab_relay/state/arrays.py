"""Saves numpy arrays that share memory, and torch's storages, without copying the memory twice."""

from __future__ import annotations

import itertools
import pickle
from typing import TYPE_CHECKING, Any, Iterable

from ..safe import module_dict
from . import rebuild
from .reasons import CannotSave

if TYPE_CHECKING:
    from .write import Saver

MAX_SEARCHED = 200_000  # objects searched for arrays that share memory


def owner_of(array: Any) -> Any:
    """The array that owns the memory of this one, which may be the array itself."""
    cls, found = type(array), array
    while type(found.base) is cls:
        found = found.base
    return found


class Sharing:
    """Finds arrays that own memory which other arrays use. A view is saved with the whole memory
    of its owner only if the owner is saved anyway or most of its memory is used. Other views are
    saved as copies: ten rows of a large array must not save all of it."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.array = module_dict("numpy").get("ndarray")
        self.tensor = module_dict("torch").get("Tensor", ())
        self.module = module_dict("torch.nn.modules.module").get("Module", ())
        self.storages: dict[int, Any] = {}  # the memory of tensors on the CPU, by address
        self.seen: dict[int, Any] = {}
        self.owners: dict[int, Any] = {}
        self.views: dict[int, list[Any]] = {}
        if self.array is not None:
            self.search(list(values))
            self.choose()

    def search(self, stack: list[Any]) -> None:
        visited: set[int] = set()
        while stack and len(visited) < MAX_SEARCHED:
            value = stack.pop()
            cls = type(value)
            if cls is self.array:
                self.seen[id(value)] = value
            elif id(value) not in visited:
                if cls in (list, tuple, set, frozenset):
                    stack.extend(itertools.islice(value, MAX_SEARCHED))
                elif cls is dict:
                    stack.extend(itertools.islice(value.values(), MAX_SEARCHED))
                elif issubclass(cls, self.tensor):
                    storage = memory_of(value)
                    if storage is not None:
                        self.storages[storage.data_ptr()] = storage
                elif issubclass(cls, self.module):
                    stack.append(value.__dict__)
            visited.add(id(value))

    def choose(self) -> None:
        for array in self.seen.values():
            owner = owner_of(array)
            if owner is not array and self.fits(array, owner):
                self.views.setdefault(id(owner), []).append(array)
        for key, views in self.views.items():
            owner = owner_of(views[0])
            large = 2 * sum(v.nbytes for v in views) >= owner.nbytes
            if key in self.seen or len(views) > 1 and large:
                self.owners[key] = owner

    @staticmethod
    def fits(array: Any, owner: Any) -> bool:
        flags = owner.flags
        return (
            array.size > 0
            and not (array.dtype.hasobject or owner.dtype.hasobject)
            and (flags.c_contiguous or flags.f_contiguous)
        )

    def owner(self, array: Any) -> Any:
        """The array that array is saved as a view of, or None if it is saved as a copy."""
        owner = owner_of(array)
        if owner is array or id(owner) not in self.owners or not self.fits(array, owner):
            return None
        return owner

    def storage(self, array: Any) -> Any:
        """The memory of a saved tensor that the array and its owner use, or None."""
        owner = owner_of(array)
        found = memory_of(owner.base) if issubclass(type(owner.base), self.tensor) else None
        if found is not None:
            return self.storages.get(found.data_ptr())
        storage = self.storages.get(address(owner))
        return storage if storage is not None and owner.nbytes <= storage.nbytes() else None


def memory_of(tensor: Any) -> Any:
    """The storage of a tensor on the CPU, None if it has none."""
    try:
        storage = tensor.untyped_storage()
    except Exception:  # of a sparse tensor
        return None
    return storage if storage.device.type == "cpu" and storage.nbytes() > 0 else None


def address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def reduce_array(saver: Saver, array: Any) -> Any:
    form = array.shape, array.strides, array.dtype, bool(array.flags.writeable)
    storage = saver.sharing.storage(array)
    if storage is not None:
        memory = bytes_of(saver, storage)
        return rebuild.make_view_of_tensor, (memory, address(array) - storage.data_ptr(), *form)
    owner = saver.sharing.owner(array)
    if owner is None:
        saver.check_space(array.nbytes)
        return array.__reduce_ex__(5)  # dill's own method copies the data
    return rebuild.make_view, (owner, address(array) - address(owner), *form)


def reduce_tensor(saver: Saver, tensor: Any) -> Any:
    """As torch does, and with the gradient of a leaf, which torch leaves out."""
    made = tensor.__reduce_ex__(5)
    if not tensor.is_leaf:
        saver.computed = True
    elif tensor.grad is not None and len(made) == 2:
        return (*made, tensor.grad, None, None, rebuild.set_gradient)
    return made


def storage_classes() -> tuple[type, ...]:
    found = module_dict("torch.storage")
    return tuple(found[n] for n in ("TypedStorage", "UntypedStorage") if n in found)


class Bytes:
    """The memory of a storage. torch returns a new storage object at each access, so tensors that
    share memory share this object instead."""

    def __init__(self, saver: Saver, storage: Any) -> None:
        self.saver, self.storage = saver, storage

    def __reduce__(self) -> Any:
        torch, storage = module_dict("torch"), self.storage
        self.saver.check_space(storage.nbytes())
        flat = torch["empty"](0, dtype=torch["uint8"], device=storage.device).set_(storage)
        data = pickle.PickleBuffer(flat.cpu().numpy())
        return rebuild.make_storage, (str(storage.device), data)


def original(obj: Any) -> Any:
    """The object that loading restores in the place of obj."""
    return obj.storage if type(obj) is Bytes else obj


def reduce_storage(saver: Saver, storage: Any) -> Any:
    if type(storage) is module_dict("torch.storage")["TypedStorage"]:
        inner = bytes_of(saver, storage._untyped_storage)
        return rebuild.make_typed_storage, (inner, storage.dtype)
    # The storage itself, because a typed one of bytes would be restored as another class.
    return rebuild.make_untyped, (bytes_of(saver, storage),)


def bytes_of(saver: Saver, storage: Any) -> Bytes:
    if storage.device.type == "meta":
        raise CannotSave("it contains a tensor without data")
    key = (str(storage.device), storage.data_ptr(), storage.nbytes())
    if key not in saver.storages:
        saver.storages[key] = Bytes(saver, storage)
    return saver.storages[key]
