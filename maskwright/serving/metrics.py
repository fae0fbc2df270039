"""Counts and times for Prometheus."""

from collections.abc import Callable
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_OTHER = "other"  # all paths that are none of ours, which anybody can make up


class Metrics:
    """The figures of one server.

    Args:
        paths: those that are counted by name.
        num_waiting: how many texts wait now.
    """

    def __init__(self, paths: tuple[str, ...], num_waiting: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self._paths = frozenset(paths)
        self._requests = Counter(
            "maskwright_requests", "Requests answered.", ("path", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "maskwright_request_seconds",
            "Time from a request to its answer.",
            ("path",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._batches = Histogram(
            "maskwright_batch_texts",
            "Texts that went through the model together.",
            buckets=_BATCHES,
            registry=self.registry,
        )
        waiting = Gauge("maskwright_waiting_texts", "Texts that wait.", registry=self.registry)
        waiting.set_function(num_waiting)

    def observe_request(self, path: str, status: int, seconds: float) -> None:
        """Counts an answer."""
        known = path if path in self._paths else _OTHER
        self._requests.labels(known, str(status)).inc()
        self._seconds.labels(known).observe(seconds)

    def observe_batch(self, size: int) -> None:
        """Counts a pass through the model."""
        self._batches.observe(size)

    def render(self) -> Any:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)
