"""Compares outputs with nbclient's: outputs.py FOLDER WORK COUNT.

Each of the COUNT folders in FOLDER has a notebook before and after our run. nbclient runs it in
WORK, with the kernel of KERNEL_PYTHON. What may differ is made equal by nbclient_outputs.
"""

import contextlib
import io
import json
import logging
import sys
import tempfile
import warnings
from pathlib import Path

import nbformat
from checks import check
from nbclient_outputs import outputs, run
from nbdime import nbdiffapp


def valid(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            nbformat.validate(
                nbformat.reads(path.read_text(encoding="utf-8-sig"), as_version=nbformat.NO_CONVERT)
            )
        except Exception as e:
            return f"{type(e).__name__}: {str(e)[:500]}"


def write(notebook, path):
    """Writes a notebook with the outputs that can be compared."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [
                nbformat.from_dict({"output_type": "stream", **json.loads(text)})
                for text in outputs(cell)
            ]
    nbformat.write(notebook, path)


def difference(folder, work, temp):
    theirs = run(folder / "source.ipynb", work)
    ours = nbformat.read(folder / "ours.ipynb", as_version=4)
    write(theirs, temp / "theirs.ipynb")
    write(ours, temp / "ours.ipynb")
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        nbdiffapp.main(
            ["-I", "-M", "-D", "--no-color", str(temp / "theirs.ipynb"), str(temp / "ours.ipynb")]
        )
    return "" if "\n## " not in text.getvalue() else text.getvalue()  # a diff of ids is only a head


def main(folder, work, count):
    logging.disable()
    folders = sorted(path for path in folder.iterdir())
    with check("a valid notebook is valid after a run, without a warning"):
        assert len(folders) == count, len(folders)
        for each in folders:
            assert valid(each / "source.ipynb") or not valid(each / "ours.ipynb"), (
                f"{each.name}: {valid(each / 'ours.ipynb')}"
            )

    with check(
        "outputs are those of nbclient, by nbdiff -I -M -D"
    ), tempfile.TemporaryDirectory() as temp:
        warnings.simplefilter("ignore")
        assert count > 15, f"only {count} notebooks"
        different = {}
        for each in folders:
            found = difference(each, work, Path(temp))
            if found:
                different[each.name] = found[:3000]
        assert not different, "\n".join(f"{name}:\n{text}" for name, text in different.items())


main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
