"""Tells what bodies carry once the set-up has run: names whose values can have changed, and
those that share objects with them."""

import json
import sys

from colab_relay.chunked.dependence import carried
from colab_relay.live import settle, sharers
from IPython.core.inputtransformer2 import TransformerManager

answers = []
for setup, loop in json.load(sys.stdin):
    found = carried(setup, loop, TransformerManager().transform_cell)
    names = {"__name__": "__main__"}
    exec(setup, names)
    settled = settle(found["names"], names)
    found["told"] = " ".join(sharers(settled, names) + ["opaque"] * bool(found["opaque"]))
    answers.append(found)
json.dump(answers, sys.stdout)
