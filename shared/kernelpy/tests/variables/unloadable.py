# Variables that can be saved and fail to load, and others that share objects with them.
import os

import numpy as np


class Problem(Exception):
    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


class Raises:
    tries = []

    def __init__(self):
        self.held = "held"

    def __setstate__(self, state):
        Raises.tries.append(state)
        raise RuntimeError


class Fine:
    made = []
    deleted = os.path.abspath("deleted")

    def __init__(self):
        self.x = 1

    def __setstate__(self, state):
        self.__dict__.update(state)
        Fine.made.append(self)
        self.shared.append("touched")

    def __del__(self):
        open(self.deleted, "w").close()


apart = [1, 2]
a_problem = {"error": Problem("loss", 2), "apart": apart, "array": np.zeros(3), "word": "w" * 300}
array = np.zeros(4)
history = {"loss": [0.5, 0.4], "word": a_problem["word"]}
holds_it = [a_problem["error"]]
model_state = {"w": [1, 2, 3], "metric": "loss"}
raises = Raises()
ring = [raises]
ring.append([ring, apart])
same_ring = ring[1]
shared_state = []
touches = Fine()
touches.shared = shared_state
