"""Files of modules, and their versions."""

import os

ANEW = "imported anew because its file changed: "


def notes(*names):
    """What is said if a program imports changed modules in this order."""
    return "\n".join(ANEW + name for name in names)


def write(path, text, like=None):
    """Writes a file; one that is like another has its times too."""
    if os.path.dirname(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    if like:
        os.utime(path, ns=(like.st_atime_ns, like.st_mtime_ns))


def edit(path, text):
    """Replaces a file by one of the same size and time."""
    before = os.stat(path)
    assert len(text.encode()) == before.st_size
    write(path, text, before)
