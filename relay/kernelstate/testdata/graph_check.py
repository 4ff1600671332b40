import inspect

wrong = []


def check(what, fine):
    if not fine:
        wrong.append(what)


check("shared", one["s"] is two[0] is two[1] is defaults.__defaults__[0] and cycle[0] is cycle)
check("function", times(2) == 6)
check("setstate", restores.v == 3)
factor = 10
check("globals", times(2) == 20 and functions["a"](1) == 11 and Sub.static() == 10)
check("underscore", functions["b"][0]() == "hidden")
times_before = times


def times(n):
    return -n


check("redefined", Restores.__setstate__.__globals__["times"] is times and times_before(1) == 10)
check("recursion", fact(5) == 120 and even(10) and inner(3) == 3)


def odd(n):
    return "redefined"


check("mutual recursion", even(1) == "redefined")
check("cell", inc() == 3 and get() == 3)
check("defaults", defaults(1)[1:] == ([1, 2], {"z": 1}) and defaults.__doc__ == "doc")
check("annotations", defaults.__annotations__ == {"return": int} and defaults.note)
check("decorator", decorated(2) == ("decorated", 4) and decorated.__wrapped__(2) == 4)
check("lru_cache", cached(2) == 20 and cached.cache_info().maxsize == 5)
check("singledispatch", dispatched(3) == "int" and dispatched("") == "object")
with manager() as managed:
    check("contextmanager", managed == 10)
check("partial", partial() == 50)

check("init_subclass ran once", Base.registry == ["Sub"] and Sub.kw == {"flavour": "sour"})


class Again(Sub):
    pass


check("init_subclass", Base.registry == ["Sub", "Again"])
check("object", obj.hello() == "base/sub7" and obj.me is obj)
check("method", method() == "base/sub7" and method.__self__ is obj)
check("class", type(obj) is Sub is class_reference and Sub.__mro__ == (Sub, Base, object))
check("members", Sub.by_class() == 5 and obj.doubled == 14 and obj.hundred == 107)
check("inner class", Sub.Inner.z == 1)
check("slots", slots.a == 1 and slots.b() == 2 and not hasattr(slots, "__dict__"))
check("dataclass", Point(2) == Point(2) and Point(2).y == [] and repr(point) == "Point(x=1, y=[], z=1.5)")
check("fields", [f.name for f in dataclasses.fields(Point)] == ["x", "y", "z"])
check("replace", dataclasses.replace(point, x=4).x == 4)


@dataclasses.dataclass
class Point3(Point):
    w: int = 3


check("derived dataclass", Point3(1) == Point3(1, [], 1.5, 3))
try:
    Frozen().a = 3
    check("frozen", False)
except dataclasses.FrozenInstanceError:
    pass
check("enum", green is Color.GREEN is Color(2) and Color.ROT is Color.RED is Color(77))
check("enum members", list(Color) == [Color.RED, Color.GREEN] and green.low == "green")
check("enum init", earth is Planet.EARTH is Planet((1, 2)) and earth.mass == 1)
check("flag", both == 6 and both is Permission.R | Permission.W and Permission.R in both)
check("namedtuple", pair == Pair(1, 9) and pair._replace(a=3).a == 3)
check("NamedTuple", typed.b == "q" and Typed(1).a == 1)
check("generic", box.v == 3 and Box.__parameters__ == (T,) and Box[int])
try:
    Abstract()
    check("abstract", False)
except TypeError:
    pass
check("abc", concrete.f() == "concrete" and isinstance(3, Abstract) and issubclass(Concrete, Abstract))
check("metaclass", Meta.made == ["WithMeta"] and WithMeta.shout() == "WITHMETA")
check("instance of it", type(with_meta) is WithMeta)
check("exception", problem.code == 4 and isinstance(problem, Problem) and error.args == ("e", 1))
check("locks", lock.acquire(False) and reentrant.acquire(False))

check("views", np.shares_memory(big, view) and np.shares_memory(turned, big) and alias is big)
view[0] = -1
check("written through", big[10] == -1 and turned[3, 2] == big[2003])
check("small part of a large array", lonely.nbytes == 24 and lonely.base.nbytes < 1000 if lonely.base is not None else True)
check("order", fortran.flags.f_contiguous and fortran[1, 2] == 5)
check("objects", objects[0] is one["s"])
check("empty", empty.size == also_empty.size == 0 and no_rows.shape == (0, 4) and len(no_frame) == 0)
check("short", [len(a) for a in history] == [0, 0, 1, 1, 1] and history[2][0] and history[4][0] == 120)
check("empty ones are writeable", empty.flags.writeable and not history[4].flags.writeable)
check("read-only", not read_only.flags.writeable and read_only[-1] == 299_999)
check("pandas", frame.shape == (5, 2) and series.sum() == 10)
check("random", random.integers(100) == np.random.default_rng(3).integers(100))
depth, level = 0, deep
while level:
    depth, level = depth + 1, level[0]
check("deep", depth == 800)
check("plain", long_list == list(range(100_000)) and strings[-1] == "s4999" and table[4999] == "4999")
check("large", big_bytes == bytes(3_000_000) and big_text == "é" * 2_000_000)
check("collections", default["zz"] == 10 and list(ordered) == ["a"] and counter["a"] == 2)
check("more collections", queue.maxlen == 3 and list(iterator) == [1, 2, 3])
check("of libraries", sin(0) == 0 and sqrt is np.sqrt and dtype == np.float32 and pi == math.pi)
check("kernel's own", stream is sys.stdout and shell is get_ipython() and nested["g"] is globals())
check("environment", variables["env"] is os.environ)
check("source", inspect.getsource(fact).startswith("def fact"))
check("modules", path_module is os.path and sys.modules["numpy"] is np)
check("repr called", not os.path.exists(os.environ["REPR_FILE"]))
check("names", naïve_名 == "names are Unicode")
print("checked" if not wrong else wrong)
