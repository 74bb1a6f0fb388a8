"""What a server counts about itself, in the words of Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The metrics of one application; each has a registry of its own, so that two can live in one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ("method", "route", "status", "graph")
        self._requests = Counter(
            "omnigraph_http_requests", "Requests that were answered.", labels, registry=self._registry
        )
        self._seconds = Histogram(
            "omnigraph_http_request_seconds",
            "Time from the first byte of a request to the last byte of its answer.",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self.writes_in_flight = Gauge(
            "omnigraph_writes_in_flight", "Writes that are admitted and not answered.", registry=self._registry
        )
        self.refused_writes = Counter(
            "omnigraph_writes_refused", "Writes that never began.", ("reason",), registry=self._registry
        )
        self.replays = Counter(
            "omnigraph_idempotent_replays", "Writes answered from an earlier request.", registry=self._registry
        )

    def answered(self, *, method: str, route: str, status: int, graph: str, seconds: float) -> None:
        """Count one request; `route` is a template and not a path, so that labels stay few."""
        self._requests.labels(method, route, str(status), graph).inc()
        self._seconds.labels(method, route).observe(seconds)

    def exposition(self) -> bytes:
        """All metrics as text."""
        return generate_latest(self._registry)
