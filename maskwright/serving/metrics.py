"""Counters and histograms for Prometheus, at /metrics."""

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)

from maskwright.serving.pipelines import Pipeline

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_OTHER = "other"  # the label of unknown paths, of which clients could make up any number


class Metrics:
    """The metrics of a server, which go on when its model is replaced.

    Args:
        paths: the paths that have a label of their own.
        count_queued: returns the number of texts in the queues.
    """

    def __init__(self, paths: Iterable[str], count_queued: Callable[[], int]) -> None:
        disable_created_metrics()  # a second series for each one, which says when it began
        self.registry = registry = CollectorRegistry()
        self._paths = frozenset(paths)
        self._requests = Counter(
            "maskwright_requests", "Requests answered.", ("path", "status"), registry=registry
        )
        self._seconds = Histogram(
            "maskwright_request_seconds",
            "Time from a request to its answer.",
            ("path",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._batches = Histogram(
            "maskwright_batch_texts",
            "Texts that went through the model together.",
            buckets=_BATCHES,
            registry=registry,
        )
        self._texts = Counter("maskwright_texts", "Texts answered.", registry=registry)
        self._cut = Counter(
            "maskwright_cut_texts", "Texts of which only the beginning was read.", registry=registry
        )
        self._labels = Counter(
            "maskwright_predicted_labels",
            "Labels that were predicted, of texts or words.",
            ("label",),
            registry=registry,
        )
        self._model = Info("maskwright_model", "The model that is served.", registry=registry)
        waiting = Gauge("maskwright_waiting_texts", "Texts that wait.", registry=registry)
        waiting.set_function(count_queued)

    def name_model(self, name: str, pipeline: Pipeline[Any]) -> None:
        """Show which model is served, with a count for each of its labels, and count from now."""
        self._model.info({"name": name, "task": pipeline.task, "sha256": pipeline.sha256})
        for label in pipeline.labels:
            self._labels.labels(label)
        pipeline.count_label = lambda label: self._labels.labels(label).inc()

    def observe_batch(self, size: int) -> None:
        """Count a pass of the model."""
        self._batches.observe(size)

    def count_texts(self, number: int, num_cut: int) -> None:
        """Count texts that were answered, and those of them that were cut."""
        self._texts.inc(number)
        self._cut.inc(num_cut)

    def observe_request(self, path: str, status: int, seconds: float) -> None:
        """Count a response."""
        label = path if path in self._paths else _OTHER
        self._requests.labels(label, str(status)).inc()
        self._seconds.labels(label).observe(seconds)

    def show(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
