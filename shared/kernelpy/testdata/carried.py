"""Tells what bodies carry, from their syntax alone."""

import json
import sys

from colab_relay.chunked.dependence import carried
from IPython.core.inputtransformer2 import TransformerManager

answers = []
for setup, loop in json.load(sys.stdin):
    found = carried(setup, loop, TransformerManager().transform_cell)
    found["told"] = " ".join(list(found["names"]) + ["opaque"] * bool(found["opaque"]))
    answers.append(found)
json.dump(answers, sys.stdout)
