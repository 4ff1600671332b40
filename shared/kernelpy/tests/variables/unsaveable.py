# Variables that can't be saved, and others that share objects with them.
import socket
import sqlite3
import subprocess
import threading
import types

kept = [1, 2]
generator = (i for i in range(3))
in_a_list = [kept, {"deep": generator}]
shares_kept = {"kept": kept}
opened = open("opened.txt", "w")


async def coroutine_function():
    pass


coroutine = coroutine_function()
held = threading.Lock()
held.acquire()
thread = threading.Thread(target=print)
connection = socket.socket()
database = sqlite3.connect(":memory:")
process = subprocess.Popen(["true"])


class Raises:
    def __reduce__(self):
        raise ValueError("no way")


class Odd:
    def __repr__(self):
        open("repr_was_called", "w").close()
        return "odd"


class RaisesWithObject:
    def __getstate__(self):
        raise KeyError(Odd())


class Exits:
    def __reduce__(self):
        raise SystemExit


raises, raises_with_object, exits = Raises(), RaisesWithObject(), Exits()
too_deep = []
for _ in range(100_000):
    too_deep = [too_deep]
namespace = globals()
made_by_hand = types.ModuleType("made_by_hand")
of_class_body = [made_by_hand]
