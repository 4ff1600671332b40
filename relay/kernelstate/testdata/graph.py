# One of everything that a notebook may hold and that must come back.
import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import math
import os
import os.path as path_module
import sys
import threading
import typing

import numpy as np
import pandas as pd

shared = [1, 2]
one = {"s": shared}
two = (shared, shared)
cycle = []
cycle.append(cycle)
factor = 3


def times(n):
    return n * factor


def fact(n):
    return 1 if n < 2 else n * fact(n - 1)


def even(n):
    return True if n == 0 else odd(n - 1)


def odd(n):
    return False if n == 0 else even(n - 1)


def make():
    c = 0

    def inc():
        nonlocal c
        c += 1
        return c

    def get():
        return c

    return inc, get


inc, get = make()
inc()
inc()


def self_reference():
    def inner(n):
        return 0 if n == 0 else 1 + inner(n - 1)

    return inner


inner = self_reference()


def defaults(a, b=shared, *, k=dict(z=1)) -> int:
    "doc"
    return a, b, k


defaults.note = "an attribute"


def decorator(f):
    @functools.wraps(f)
    def wrapper(*args):
        return ("decorated", f(*args))

    return wrapper


@decorator
def decorated(q):
    return q * 2


def _hidden():
    return "hidden"


functions = {"a": lambda v: v + factor, "b": [lambda: _hidden()]}


@functools.lru_cache(maxsize=5)
def cached(n):
    return n * factor


@functools.singledispatch
def dispatched(v):
    return "object"


@dispatched.register(int)
def _dispatched_int(v):
    return "int"


@contextlib.contextmanager
def manager():
    yield factor


partial = functools.partial(times, 5)


class Base:
    registry = []

    def __init_subclass__(cls, **kw):
        super().__init_subclass__()
        Base.registry.append(cls.__name__)
        cls.kw = kw

    def hello(self):
        return "base"


class Sub(Base, flavour="sour"):
    n = 5

    def __init__(self, v):
        self.v = v

    def hello(self):
        return super().hello() + "/sub%d" % self.v

    @classmethod
    def by_class(cls):
        return cls.n

    @staticmethod
    def static():
        return factor

    @property
    def doubled(self):
        return self.v * 2

    @functools.cached_property
    def hundred(self):
        return self.v + 100

    class Inner:
        z = 1


obj = Sub(7)
obj.me = obj
method = obj.hello
class_reference = Sub


class Slots:
    __slots__ = ("a", "__b")

    def __init__(self):
        self.a, self.__b = 1, 2

    def b(self):
        return self.__b


slots = Slots()


@dataclasses.dataclass
class Point:
    x: int
    y: list = dataclasses.field(default_factory=list)
    z: float = 1.5


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int = 1


point = Point(1)


class Color(enum.Enum):
    RED = 1
    GREEN = 2
    ROT = 1

    @property
    def low(self):
        return self.name.lower()

    @classmethod
    def _missing_(cls, value):
        return cls.RED


class Planet(enum.Enum):
    EARTH = (1, 2)

    def __init__(self, mass, radius):
        self.mass, self.radius = mass, radius


class Permission(enum.IntFlag):
    R = 4
    W = 2
    X = 1


green = Color.GREEN
earth = Planet.EARTH
both = Permission.R | Permission.W

Pair = collections.namedtuple("Pair", "a b", defaults=[9])
pair = Pair(1)


class Typed(typing.NamedTuple):
    a: int
    b: str = "q"


typed = Typed(3)
T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    def __init__(self, v: T):
        self.v = v


box = Box[int](3)


class Abstract(abc.ABC):
    @abc.abstractmethod
    def f(self): ...


class Concrete(Abstract):
    def f(self):
        return "concrete"


Abstract.register(int)
concrete = Concrete()


class Meta(type):
    made = []

    def __new__(meta, name, bases, body):
        meta.made.append(name)
        return super().__new__(meta, name, bases, body)

    def shout(cls):
        return cls.__name__.upper()


class WithMeta(metaclass=Meta):
    pass


with_meta = WithMeta()


class Restores:
    """Its __setstate__ needs a function of the notebook."""

    def __init__(self):
        self.v = 1

    def __getstate__(self):
        return {"v": 1}

    def __setstate__(self, state):
        self.v = times(state["v"])


restores = Restores()


class Problem(Exception):
    def __init__(self, code):
        super().__init__("code %d" % code)
        self.code = code

    def __reduce__(self):
        return Problem, (self.code,)


problem = Problem(4)


class Silent:
    def __repr__(self):
        open(os.environ["REPR_FILE"], "w").close()
        return "x"

    __str__ = __repr__


silent = Silent()
lock = threading.Lock()
reentrant = threading.RLock()
big = np.arange(1_000_000, dtype=float)
view = big[10:20]
turned = big.reshape(1000, 1000).T
alias = big
lonely = np.zeros(2_000_000)[5:8]
fortran = np.asfortranarray(np.arange(6).reshape(2, 3))
objects = np.array([shared, None], dtype=object)
empty, also_empty, no_rows = np.array([]), np.array([]), np.zeros((0, 4))
history = [np.array([]), np.array([]), np.array([True]), np.array([True]), np.frombuffer(b"x", "u1")]
no_frame = pd.DataFrame({"a": []})
read_only = np.arange(300_000)
read_only.flags.writeable = False
frame = pd.DataFrame({"a": np.arange(5), "b": list("abcde")})
series = frame["a"]
random = np.random.default_rng(3)
deep = []
for _ in range(800):
    deep = [deep]
long_list = list(range(100_000))
strings = ["s%d" % i for i in range(5000)]
table = {i: str(i) for i in range(5000)}
big_bytes = bytes(3_000_000)
big_text = "é" * 2_000_000
default = collections.defaultdict(lambda: factor, {1: 2})
ordered = collections.OrderedDict(a=1)
counter = collections.Counter("aab")
queue = collections.deque([1], 3)
iterator = iter([1, 2, 3])
pi, sin, sqrt, dtype = math.pi, math.sin, np.sqrt, np.dtype("f4")
stream, shell, nested, variables = sys.stdout, get_ipython(), {"g": globals()}, {"env": os.environ}
error = ValueError("e", 1)
naïve_名 = "names are Unicode"
