"""Counters and histograms for Prometheus, at /metrics."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_OTHER = "other"  # the label of unknown paths, of which clients could make up any number


class Metrics:
    """The metrics of one server.

    Args:
        paths: the paths that have a label of their own.
        count_queued: returns the number of texts in the queues.
    """

    def __init__(self, paths: tuple[str, ...], count_queued: Callable[[], int]) -> None:
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
        self.batches = Histogram(
            "maskwright_batch_texts",
            "Texts that went through the model together.",
            buckets=_BATCHES,
            registry=self.registry,
        )
        waiting = Gauge("maskwright_waiting_texts", "Texts that wait.", registry=self.registry)
        waiting.set_function(count_queued)

    def observe_request(self, path: str, status: int, seconds: float) -> None:
        """Count a response."""
        label = path if path in self._paths else _OTHER
        self._requests.labels(label, str(status)).inc()
        self._seconds.labels(label).observe(seconds)

    def render(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        return generate_latest(self.registry)
