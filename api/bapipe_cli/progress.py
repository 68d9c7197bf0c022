"""The progress bar of a search, on stderr, and only where stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar

from bapipe.quantities import gap_text, seconds_text
from bapipe_cli.output import console, visible


class SearchProgress(Protocol):
    """What is known of a search, here or on a service: seconds of its objective, None where not known."""

    @property
    def phase(self) -> str: ...

    @property
    def incumbent_s(self) -> float | None: ...

    @property
    def lower_bound_s(self) -> float | None: ...

    @property
    def gap(self) -> float | None: ...


Report = Callable[[SearchProgress], None]


@contextmanager
def search_progress(title: str, time_limit_s: float) -> Iterator[Report]:
    """Yields what a search reports its progress to."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    title = visible(title)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        _TimeUsed(bar_width=30),
        TextColumn("{task.fields[found]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task(title, total=time_limit_s, found="")

        def report(progress: SearchProgress) -> None:
            bar.update(task, description=f"{title}: {progress.phase}", found=found_text(progress))

        yield report


@contextmanager
def waiting_progress(title: str) -> Iterator[Report]:
    """Yields what a piece of work of unknown length reports how far it is to."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    title = visible(title)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda progress: bar.update(task, description=f"{title}: {progress.phase}")


@contextmanager
def counted_progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Yields what a piece of work reports (done, in all, what comes next) to."""
    if not sys.stderr.isatty():
        yield lambda done, total, what: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.completed:.0f}/{task.total:.0f}", markup=False),
        TimeElapsedColumn(),
    )
    title = visible(title)
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task(title, total=0)
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=f"{title}: {what}")


@contextmanager
def step_progress(title: str, steps: int) -> Iterator[Callable[[int, float, float], None]]:
    """Yields what a training run reports (step, loss, samples per second) to; lines where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield _print_step
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[found]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task(visible(title), total=steps, found="")
        yield lambda step, loss, rate: bar.update(task, completed=step, found=f"loss {loss:.6g}, {rate:.4g} samples/s")


def _print_step(step: int, loss: float, samples_per_s: float) -> None:
    sys.stderr.write(f"step {step}: loss {loss:.6g}, {samples_per_s:.4g} samples/s\n")


def found_text(progress: SearchProgress) -> str:
    """Incumbent, bound and gap, as far as they are known."""
    parts = [
        f"{name} {text(value)}"
        for name, value, text in (
            ("best", progress.incumbent_s, seconds_text),
            ("bound", progress.lower_bound_s, seconds_text),
            ("gap", progress.gap, gap_text),
        )
        if value is not None
    ]
    return ", ".join(parts)


class _TimeUsed(BarColumn):
    """How much of the time limit is used. Drawn from the clock, so it moves between two reports too."""

    def render(self, task: Task) -> ProgressBar:
        task.completed = min(task.elapsed or 0.0, task.total or 0.0)
        return super().render(task)
