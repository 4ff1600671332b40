# Runs cells of random notebooks, each notebook in a namespace of its own, so that thousands
# need only one request. The relay's tests send it with a job and read one line of JSON.
import builtins
import json
import signal
import types


def hangs(*args):
    raise TimeoutError("the cell hangs")


signal.signal(signal.SIGALRM, hangs)


class World:
    def __init__(self):
        self.names = {"__name__": "world", "__builtins__": builtins, "checkpoint": lambda *a: None}
        self.statuses = []

    def run(self, cell, fails=False):
        def checkpoint(*args):
            if fails:
                raise RuntimeError("planned")

        self.names["checkpoint"] = checkpoint
        signal.setitimer(signal.ITIMER_REAL, 5)
        try:
            exec(compile(cell, "<cell>", "exec"), self.names)
        except Exception as error:
            return type(error).__name__
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return ""

    def values(self):
        return {n: show(v) for n, v in self.names.items() if n[:2] != "__" and n != "checkpoint"}


def show(value, depth=0):
    if isinstance(value, (list, tuple)) and depth < 5:
        return "[" + ",".join(show(v, depth + 1) for v in value[:12]) + "]"
    if isinstance(value, dict) and depth < 5:
        return "{" + ",".join(show(k, 9) + ":" + show(v, depth + 1) for k, v in value.items()) + "}"
    if isinstance(value, (int, str, float, type(None))):
        return repr(value)
    if hasattr(value, "__dict__") and not isinstance(value, (type, types.FunctionType)) and depth < 5:
        return type(value).__name__ + show(vars(value), depth + 1)
    return type(value).__name__


def play(job):
    """The status of each step, and the values after each."""
    world, statuses, values = World(), [], []
    for step in job:
        statuses.append(world.run(step["cell"], step.get("fails", False)))
        values.append(world.values() if step.get("show") else None)
    return {"statuses": statuses, "values": values}


def play_all(jobs):
    return json.dumps([play(job) for job in json.loads(jobs)])
