"""What the programs of oracle.py are made of."""

# name: setup, loop, what shows the value. K is replaced by a number of its own. A feature whose
# name begins with "unkept" passes on something that no new kernel can get.
FEATURES = {
    "number": ("nK = 3", "nK = nK * 3 % 1009 + i", "nK"),
    "augmented": ("nK = 0.5", "nK += i / 7", "nK"),
    "swap": ("aK, bK = 1, 2", "aK, bK = bK, aK + bK", "aK, bK"),
    "list": ("xsK = []", "xsK.append((i, len(xsK)))", "xsK"),
    "list item": ("xsK = [0] * 4", "xsK[i % 4] += i", "xsK"),
    "items": ("hK = {'l': [], 'm': []}", "for kK, vK in hK.items(): vK.append(i)", "hK"),
    "get": ("hK = {'l': []}", "hK.get('l').append(i)", "hK"),
    "rows": ("rowsK = [[], []]", "for jK, rK in enumerate(rowsK): rK.append(i * jK)", "rowsK"),
    "pop": ("dK = dict.fromkeys(range(40))", "dK.pop(i); dK[i + 100] = [i]", "dK"),
    "set": ("sK = set()", "sK.add(str(i * 7 % 5)); mK = sorted(sK)", "sK, mK"),
    "object": (
        "class CK:\n    n = 0\n    def add(self, x): self.n += x\noK = CK()\noK.n = 0",
        "oK.add(i)",
        "oK.n",
    ),
    "objects": (
        "class DK:\n    def __init__(self, n): self.n = n\nosK = [DK(n) for n in range(3)]",
        "osK[i % 3].n += i",
        "[o.n for o in osK]",
    ),
    "class": (
        "class EK:\n    n = 0\n    seen = []", "EK.n += i; EK.seen.append(i)", "EK.n, EK.seen"
    ),
    "slots": (
        "class SK:\n    __slots__ = ('n', 'm')\nzK = SK(); zK.n = 0",
        "zK.n += i; zK.m = i",
        "zK.n, zK.m",
    ),
    "data class": (
        "import dataclasses\n@dataclasses.dataclass\nclass PK:\n    x: int = 0\n    ys: list = "
        "dataclasses.field(default_factory=list)\npK = PK()",
        "pK.x += 1; pK.ys.append(pK.x * i)",
        "pK.x, pK.ys",
    ),
    "closure": (
        "def makeK():\n    n = 0\n"
        "    def inc(x):\n        nonlocal n\n        n += x\n        return n\n"
        "    def get(): return n\n    return inc, get\nincK, getK = makeK()",
        "incK(i)",
        "getK()",
    ),
    "default": (
        "def fK(x, seen=[]):\n    seen.append(x)\n    return len(seen)", "cK = fK(i)", "cK"
    ),
    "attribute": (
        "def fK(x):\n    fK.n = getattr(fK, 'n', 0) + x\n    return fK.n",
        "cK = fK(i)",
        "cK",
    ),
    "global": ("qK = 1\ndef bumpK():\n    global qK\n    qK = qK * 2 % 97", "bumpK()", "qK"),
    "functions": (
        "accK = []\ndef oneK(x): accK.append(x)\ntableK = {'f': oneK}",
        "tableK['f'](i * 2)",
        "accK",
    ),
    "method": ("lK = []\ncallK = {'add': lK.append}", "callK['add'](i)", "lK"),
    "partial": (
        "import functools\nuK = []\ndef putK(where, x): where.append(x)\n"
        "pK = functools.partial(putK, uK)",
        "pK(i)",
        "uK",
    ),
    "random": ("random.seed(SEED)\nrK = []", "rK.append(random.random())", "rK"),
    "random unkept": ("random.seed(SEED)", "rK = random.random()", "rK"),
    "numpy random": ("np.random.seed(SEED)\nrK = 0.0", "rK += np.random.rand()", "rK"),
    "shuffle": ("random.seed(SEED)\nxsK = list(range(9))", "random.shuffle(xsK)", "xsK"),
    "random by name": (
        "from random import gauss as gaussK, seed as seedK\nseedK(SEED)\nrK = []",
        "rK.append(gaussK(0, 1))",
        "rK",
    ),
    "numpy random by name": (
        "from numpy.random import rand as randK, seed as npseedK\nnpseedK(SEED)\nrK = 0.0",
        "rK += randK()",
        "rK",
    ),
    "own random": ("gK = random.Random(SEED)", "rK = gK.random()", "rK"),
    "numpy generator": ("gK = np.random.default_rng(SEED)", "rK = float(gK.normal())", "rK"),
    "alias": ("aK = [0]\nbK = {'x': aK}", "aK.append(i)", "bK"),
    "two names": ("aK = []\nbK = aK", "aK.append(i); bK.append(-i)", "aK"),
    "alias inside": ("aK = [[0]] * 3", "aK[0].append(i)", "aK"),
    "row": ("msK = [[0], [1]]\nrowK = msK[1]", "rowK.append(i)", "msK"),
    "cycle": ("cK = []\ncK.append(cK)\nlenK = 0", "cK.append(i); lenK = len(cK[0])", "lenK"),
    "array": ("aK = np.zeros(5)", "aK[i % 5] += i", "aK"),
    "array anew": ("aK = np.ones((2, 3))", "aK = aK * 1.5 + i", "aK"),
    "view": ("aK = np.arange(12.)\nvK = aK[2:7]", "vK += 1", "aK"),
    "reshaped": ("aK = np.zeros(6, int)\nvK = aK.reshape(2, 3)", "aK[i % 6] = i", "vK"),
    "transposed": ("aK = np.zeros((2, 2))\nvK = aK.T", "vK[0, 1] += i", "aK"),
    "object array": ("aK = np.array([[], {}], object)", "aK[1][i] = i; aK[0].append(i)", "aK"),
    "frame": ("dfK = pd.DataFrame({'x': [0, 0, 0], 'y': ['a', 'b', 'c']})",
              "dfK.loc[i % 3, 'x'] += i", "dfK"),
    "frame column": ("dfK = pd.DataFrame({'x': [1., 2.]})", "dfK['c%d' % (i % 3)] = i", "dfK"),
    "series": ("sK = pd.Series([1, 2, 3], ['a', 'b', 'c'])", "sK['b'] += i", "sK"),
    "frames": ("fsK = []", "fsK.append(pd.DataFrame({'i': [i]}))", "pd.concat(fsK)"),
    "deque": ("dK = collections.deque(maxlen=3)", "dK.append(i)", "dK"),
    "counter": ("cK = collections.Counter()", "cK[i % 3] += 1", "cK"),
    "default dict": ("ddK = collections.defaultdict(list)", "ddK[i % 2].append(i)", "ddK"),
    "bytes": ("bK = bytearray(b'ab')", "bK.append(i)", "bK"),
    "text": ("tK = ''", "tK += str(i)", "tK"),
    "iterator": ("itK = iter(list(range(900)))", "xK = next(itK)", "xK"),
    "unkept generator": ("gK = (x * x for x in range(900))", "xK = next(gK)", "xK"),
    "unkept generator function": (
        "def genK():\n    n = 0\n    while True:\n        n += 3\n        yield n\ngK = genK()",
        "xK = next(gK)",
        "xK",
    ),
    "exec": ("eK = 1", "exec('eK = eK * 5 % 83')", "eK"),
    "exec alone": ("", "exec('eK = globals().get(\"eK\", 0) + i')", "globals()['eK']"),
    "globals": ("wK = 0", "globals()['wK'] += i", "wK"),
    "magic": ("mK = []", "%time mK.append(i)", "mK"),
    "setup magic": ("%time mK = [1]", "mK.append(i)", "mK"),
    "now and then": ("lastK = -1", "if i % 3 == 0: lastK = i", "lastK"),
    "absent": ("", "if i == 4: newK = [i]\nif i > 4: newK.append(i)", "newK if i > 3 else 0"),
    "deleted": ("goneK = 5", "if i == 3: del goneK", "'goneK' in globals()"),
    "try": (
        "oddK = 0", "try:\n    1 / (i % 2)\nexcept ZeroDivisionError as e:\n    oddK += 1", "oddK"
    ),
    "with": ("wK = 0", "with open(os.devnull) as fhK: wK += len(fhK.read()) + i", "wK"),
    "while": ("kK = 0", "jK = 0\nwhile jK < i:\n    jK += 1\n    kK += jK", "kK"),
    "comprehension": ("ysK = [0]", "ysK = [y + i for y in ysK][-3:] + [i]", "ysK"),
    "walrus": ("zK = 1", "if (tK := i % 3): zK += tK", "zK"),
    "unmade": ("madeK = [outside()]", "nK = len(madeK) + i", "madeK"),
    "read only": ("tableK = {n: n * n for n in range(50)}", "vK = tableK[i]", "vK"),
    "temporaries": ("", "tK = [i, 2 * i]; uK = sum(tK)", "uK"),
    "temporary file": ("", "fhK = open(os.devnull)\nvK = fhK.read() + str(i)", "vK"),
    "temporary generator": ("", "gK = (x for x in range(i))\nvK = sum(gK)", "vK"),
    "temporary function": ("", "fK = lambda x: x + 1\nvK = fK(i)", "vK"),
    "read file": ("", "with open(os.devnull) as fhK: vK = fhK.read()\nvK = i", "vK"),
}  # fmt: skip
IMPORTS = "import collections, os, random\nimport numpy as np, pandas as pd"
