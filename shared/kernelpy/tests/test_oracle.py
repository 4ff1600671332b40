"""A sample of random runs under random events; oracle.py tries more."""

import collections

import oracle
import pytest
from colab_relay.chunked import interrupts, run


@pytest.mark.parametrize(
    "first", [0, pytest.param(20, marks=pytest.mark.long), pytest.param(40, marks=pytest.mark.long)]
)
def test_what_is_reported_as_finished_is_what_the_loop_alone_gives(first, shell, monkeypatch):
    monkeypatch.setattr(run, "hide_frames", run.hide_frames)
    monkeypatch.setattr(run, "FEW", run.FEW)
    monkeypatch.setattr(run, "MAX_FEW", run.MAX_FEW)
    monkeypatch.setattr(interrupts, "GRACE", interrupts.GRACE)
    counts = collections.Counter()
    wrong = [oracle.attempt(seed, counts) for seed in range(first, first + 20)]
    assert not any(wrong), next(filter(None, wrong))
    assert counts["finished"] >= 8 and not counts["tame, asked"], counts
