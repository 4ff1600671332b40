"""One variable of each kind that is known."""

import collections
import datetime
import decimal
import math

import numpy as np
import pandas as pd

none = None
yes = True
number = 42
huge = 10**5000
ratio = 1.5
text = "naïve 🙂"
surrogate = "\ud800"
raw = b"ab\x00"
items = [1, "x", {"k": (1,)}]
items.append(items)
pair = (1,)
table = {"a": 1, 2: None}
unique = {3}
steps = range(0, 10, 2)
queue = collections.deque([1, 2])
ordered = collections.OrderedDict(a=1)
point = collections.namedtuple("Point", "x y")(1, 2)
day = datetime.date(2026, 1, 2)
moment = datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.timezone.utc)
price = decimal.Decimal("1.20")
matrix = np.arange(6.0).reshape(2, 3)
scalar = np.float32(0.5)
days = np.array(["2026-01-02"], dtype="M8[D]")
empty = np.zeros((0, 4))
cell = np.array(5)
frame = pd.DataFrame({"x": [1, 2, 3], "y": pd.to_datetime(["2026-01-02"] * 3)})
series = frame["x"]
index = pd.Index([1, 2])
rows = frame.index
generator = (i for i in [1])


def train(x, lr=1, *, steps=2):
    return x


class Model:
    pass


model = Model()
root = math.sqrt
