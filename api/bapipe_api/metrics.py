"""What one process has to tell Prometheus. No label holds an id: the number of series does not grow with use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bapipe_api.kinds import Kind
from bapipe_api.states import State

SOLVE_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class Metrics:
    """The figures of this process, in a registry of their own.

    `bapipe_jobs_total{kind,state}` counts how often this process brought a job into a state,
    `bapipe_solve_duration_seconds{kind}` how long every attempt took.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._jobs = Counter("bapipe_jobs", "Jobs brought into a state", ["kind", "state"], registry=self.registry)
        self._duration = Histogram(
            "bapipe_solve_duration_seconds",
            "Attempts to do a job",
            ["kind"],
            buckets=SOLVE_BUCKETS_S,
            registry=self.registry,
        )
        for kind in Kind:
            self._duration.labels(kind.value)
            for state in State:
                self._jobs.labels(kind.value, state.value)

    def count(self, kind: Kind, state: State | None) -> None:
        """A job is now in `state`; None: it is not known in which."""
        if state is not None:
            self._jobs.labels(kind.value, state.value).inc()

    def observe(self, kind: Kind, seconds: float) -> None:
        """An attempt at a job took so long."""
        self._duration.labels(kind.value).observe(seconds)

    def watch_queue(self, counts: Callable[[], dict[State, int]]) -> None:
        """Asks `counts` for the jobs in each unfinished state whenever Prometheus asks."""
        self.registry.register(_Queue(counts))


class _Queue(Collector):
    def __init__(self, counts: Callable[[], dict[State, int]]) -> None:
        self._counts = counts

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Said without asking the store, which may not answer when the service starts."""
        yield GaugeMetricFamily("bapipe_queue_depth", "Jobs that wait for their turn")
        yield GaugeMetricFamily("bapipe_jobs_running", "Jobs that a worker holds")

    def collect(self) -> Iterator[GaugeMetricFamily]:
        counts = self._counts()
        waiting = counts[State.QUEUED]
        yield GaugeMetricFamily("bapipe_queue_depth", "Jobs that wait for their turn", value=waiting)
        held = counts[State.RUNNING] + counts[State.CANCELLING]
        yield GaugeMetricFamily("bapipe_jobs_running", "Jobs that a worker holds", value=held)
