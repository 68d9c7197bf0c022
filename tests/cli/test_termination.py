"""A request to end, which is no Ctrl-C."""

from __future__ import annotations

import os
import signal

import pytest

from bapipe_cli.termination import ended_in_order


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_unwinds_the_command(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as caught, ended_in_order():
        os.kill(os.getpid(), number)
    assert caught.value.code == 128 + number
    assert capsys.readouterr().err == f"bapipe: ended by {number.name}\n"
    assert signal.getsignal(number) == before


def test_a_command_that_is_to_ignore_it_does() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_in_order():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
