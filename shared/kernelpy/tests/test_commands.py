"""Interrupts of commands such as !sleep 60."""

import os
import signal
import threading

import pytest
from colab_relay import commands


@pytest.fixture
def interrupt(monkeypatch):
    """Interrupts this process as the executor does, and restores the handler after the test."""
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(commands, "AGAIN", 0.05)
    yield lambda: os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def caught(interrupt):
    """What IPython does with a command: it ends it and goes on."""
    try:
        interrupt()
        threading.Event().wait(60)
    except KeyboardInterrupt:
        return "ended"


def test_an_interrupt_that_ends_a_command_is_raised_after_it(interrupt):
    with pytest.raises(KeyboardInterrupt):
        commands.raising(caught)(interrupt)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_notes_the_first_interrupt_has_its_way(interrupt):
    noted = []

    def note(number, frame):
        noted.append(number)

    signal.signal(signal.SIGINT, note)
    assert commands.raising(interrupt)() is None  # the command ends by itself
    assert noted == [signal.SIGINT] and signal.getsignal(signal.SIGINT) is note
    with pytest.raises(KeyboardInterrupt):  # the command does not
        commands.raising(caught)(interrupt)


def test_where_interrupts_are_ignored_a_command_runs_on(interrupt):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert commands.raising(lambda: interrupt() or "ran")() == "ran"
