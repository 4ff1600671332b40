"""Variables whose every special method writes its name down in _ran and raises."""

_ran = []


def _spy(name):
    def method(*args, **kwargs):
        _ran.append(name)
        raise RuntimeError(name)

    return method


_SPECIAL = """
    __repr__ __str__ __bytes__ __format__ __lt__ __le__ __eq__ __ne__ __gt__ __ge__ __hash__
    __bool__ __getattr__ __getattribute__ __dir__ __len__ __length_hint__ __getitem__
    __contains__ __iter__ __next__ __reversed__ __call__ __index__ __int__ __float__ __complex__
    __sizeof__ __reduce__ __reduce_ex__ __getstate__ __copy__ __deepcopy__ __enter__ __exit__
    __instancecheck__ __subclasscheck__ __array__ __array_interface__ __array_ufunc__
    __array_function__ __torch_function__ __dataframe__ __fspath__ __await__ _repr_html_
    _repr_mimebundle_ _ipython_display_ _repr_pretty_ keys items values shape dtype nbytes
""".split()

_spies = {name: _spy(name) for name in _SPECIAL}
_spies["__class__"] = property(_spy("__class__"))
_spies["__dict__"] = property(_spy("__dict__"))
_plain = {k: v for k, v in _spies.items() if k not in ("__dict__",)}

_Meta = type("_Meta", (type,), {n: _spies[n] for n in _SPECIAL if n not in ("__call__",)})


def _make(name, *bases):
    return type.__new__(_Meta, name, bases, dict(_plain))


_Plain = _make("Plain")
plain = object.__new__(_Plain)
klass = _Plain
a_list = list.__new__(_make("AList", list))
list.extend(a_list, [1, plain])
a_dict = dict.__new__(_make("ADict", dict))
dict.__setitem__(a_dict, "k", plain)
a_tuple = tuple.__new__(_make("ATuple", tuple), (1, plain))
a_str = str.__new__(_make("AStr", str), "text")
an_int = int.__new__(_make("AnInt", int), 7)
a_float = float.__new__(_make("AFloat", float), 1.5)
a_set = set.__new__(_make("ASet", set))
nested = {"deep": [plain, (plain,)]}
slotted = type("Slotted", (), {"__slots__": ("x",), "__getattr__": _spy("__getattr__")})()


def _arrays():
    import numpy as np
    import pandas as pd

    objects = np.empty(2, dtype=object)
    objects[0] = plain
    array = np.zeros(3).view(type("AnArray", (np.ndarray,), {"__repr__": _spy("__repr__")}))
    frame = pd.DataFrame({"x": [1, 2]})
    frame["o"] = [1, 2]
    frame["o"] = frame["o"].astype(object)
    frame._mgr.iget_values(1)[0] = plain
    frame.attrs["note"] = plain
    numbers = {"__repr__": _spy("__repr__"), "shape": property(_spy("shape"))}
    subframe = type("AFrame", (pd.DataFrame,), numbers)({"x": [1]})
    np.set_printoptions(formatter={"all": _spy("formatter")})
    return objects, array, frame, subframe


objects, an_array, a_frame, a_subframe = _arrays()
_ran.clear()
