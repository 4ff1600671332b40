"""Saves a class that the notebook defines: first an empty class with the same name, bases and
slots, to which its methods and instances can refer, then its attributes."""

from __future__ import annotations

import _abc
import abc
import enum
import types
from typing import Any

from . import rebuild

# Attributes that every new class gets.
GENERATED = {"__dict__", "__weakref__", "_abc_impl", "__module__", "__qualname__", "__slots__"}
GENERATED |= {"__orig_bases__"}
MADE_WITH_CLASS = ("__module__", "__qualname__", "__slots__", "__orig_bases__")

# Attributes that every new enumeration gets. Of the names with one underscore on each side, the
# user may have defined only these two.
ENUM_GENERATED = {"__new__", "__new_member__", "__reduce_ex__", "__members__"}
ENUM_USER_HOOKS = {"_missing_", "_ignore_"}


def attributes(cls: type) -> dict[str, Any]:
    return dict(type.__dict__["__dict__"].__get__(cls))


def reduce_class(cls: Any) -> Any:
    mine = attributes(cls)
    namespace = {name: mine[name] for name in MADE_WITH_CLASS if name in mine}
    args: tuple[Any, ...] = (type(cls), cls.__name__, cls.__bases__, namespace)
    own = {k: v for k, v in mine.items() if not is_generated(cls, k, v)}
    make: Any = rebuild.make_class
    if issubclass(type(cls), enum.EnumMeta) and cls.__members__:
        make, args = rebuild.make_enum, args + (members(cls),)
        own = {k: v for k, v in own.items() if not is_generated_by_enum(cls, k)}
    return make, args, (own, registered(cls)), None, None, rebuild.fill_class


def is_generated(cls: type, name: str, value: Any) -> bool:
    if name in GENERATED:
        return True
    of_layout = (types.MemberDescriptorType, types.GetSetDescriptorType)
    return isinstance(value, of_layout) and value.__objclass__ is cls


def is_generated_by_enum(cls: Any, name: str) -> bool:
    if name in ENUM_GENERATED or name in cls.__members__:
        return True
    return name[:1] == name[-1:] == "_" and name[:2] != "__" and name not in ENUM_USER_HOOKS


def members(cls: Any) -> list[tuple[str, Any, dict[str, Any]]]:
    """The name, value and further attributes of each member. An alias has its member's value."""
    return [
        (name, member.value, {k: v for k, v in vars(member).items() if is_user_attribute(k)})
        for name, member in cls.__members__.items()
    ]


def is_user_attribute(name: str) -> bool:
    return not (name[:1] == name[-1:] == "_") and name != "_sort_order_"


def registered(cls: type) -> list[type]:
    """The classes that were registered with an abstract class."""
    if not issubclass(type(cls), abc.ABCMeta):
        return []
    found = [reference() for reference in _abc._get_dump(cls)[0]]
    return [other for other in found if other is not None]
