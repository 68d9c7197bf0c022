"""Formulations that ignore what they are asked: to be run in a child process, which is killed."""

from __future__ import annotations

import os
import subprocess
from typing import Any, NoReturn


class SpinForEver:
    """Never looks at the clock, and never lets go of the interpreter's lock for long."""

    name = "spin"
    tolerance = 0.0
    works_on_graph = False

    def solve(self, problem: object, listener: object) -> NoReturn:
        while True:
            pass


class Delegate:
    """Has another program do the work, as solvers outside of Python do, and never hears of it again."""

    name = "delegate"
    tolerance = 0.0
    works_on_graph = False

    def __init__(self, note: str) -> None:
        """`note`: the file that the program's number is written to."""
        self.note = note

    def solve(self, problem: object, listener: object) -> NoReturn:
        with subprocess.Popen(["sleep", "1000"]) as program, open(self.note, "a", encoding="ascii") as note:
            note.write(f"{program.pid}\n")
            note.flush()
            program.wait()
        raise AssertionError("it was not killed")


class Hoard:
    """Asks for memory until it gets none."""

    name = "hoard"
    tolerance = 0.0
    works_on_graph = False

    def solve(self, problem: object, listener: object) -> NoReturn:
        hoard("")


def hoard(asked: str) -> NoReturn:
    """A replay that does the same."""
    kept = []
    while True:
        kept.append(bytearray(b"x") * 2**24)


class Die:
    """Takes its process down with it, as a crash in native code does."""

    name = "die"
    tolerance = 0.0
    works_on_graph = False

    def solve(self, problem: object, listener: object) -> NoReturn:
        os._exit(70)


class Raise:
    """Fails with an exception of its own."""

    name = "raise"
    tolerance = 0.0
    works_on_graph = False

    def solve(self, problem: object, listener: object) -> NoReturn:
        raise ZeroDivisionError("by the formulation")


class Overclaim:
    """Says that nothing is below what is known already by a factor of two."""

    name = "overclaim"
    tolerance = 0.0
    works_on_graph = True

    def solve(self, problem: object, listener: Any) -> bool:
        listener.bound(2 * listener.best_s)
        return True
