"""What a Prometheus server reads at /metrics: numbers of the streams that are in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
MOST_STREAMS = 4096  # whose latencies are kept


class Latencies:
    """From the arrival of an image at its shard to its answer, by stream."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, name: str, seconds: float) -> None:
        if name not in self._counts and len(self._counts) >= MOST_STREAMS:
            self._forget(next(iter(self._counts)))
        counts = self._counts.setdefault(name, [0] * (len(BOUNDS) + 1))
        counts[bisect_left(BOUNDS, seconds)] += 1
        self._sums[name] = self._sums.get(name, 0.0) + seconds

    def of(self, names: set[str]) -> dict[str, tuple[list[int], float]]:
        """(images per bucket, sum of seconds) of these streams; the others are forgotten."""
        for name in set(self._counts) - names:
            self._forget(name)
        return {name: (list(self._counts[name]), self._sums[name]) for name in self._counts}

    def _forget(self, name: str) -> None:
        del self._counts[name], self._sums[name]


# key of a row: name of the metric, what it is
COUNTERS = {
    "images": ("images", "Images that were answered."),
    "batches": ("batches", "Batches that were answered."),
    "learned": ("batches_learned", "Batches that were learned from."),
    "by_source": ("images_by_source", "Images that the source model predicted."),
    "seconds": ("compute_seconds", "Seconds of computing."),
}
GAUGES = {
    "entropy": ("entropy", "Mean entropy of the predictions of the last batch."),
    "drift": ("drift", "Distance of the adapted parameters from those of the source model."),
    "nrs": ("redundancy", "NRS of the features of the last batch."),
    "changed": ("changed", "Share of predictions that differ from the source model's, last batch."),
    "frozen": ("frozen", "1 where the stream predicts without learning."),
}
SHARD_COUNTERS = {
    "checkpoints": ("checkpoints", "Checkpoints that were written."),
    "checkpoint_failures": ("checkpoint_failures", "Checkpoints that could not be written."),
}
SHARD_GAUGES = {
    "in_memory": ("streams_in_memory", "Streams in memory."),
    "waiting": ("images_waiting", "Images that wait for their batch."),
}


def exposition(shards: Sequence[Mapping[str, Any]]) -> tuple[bytes, str]:
    """The page and its content type, from what `Shard.metrics` says of each shard."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
    from prometheus_client.registry import Collector

    class Found(Collector):
        def collect(self) -> Iterator[Any]:
            yield from _families(shards)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Found())
    return generate_latest(registry), CONTENT_TYPE_LATEST


def _families(shards: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    rows = [row for shard in shards for row in shard["streams"] if row.get("in_memory")]
    by_stream = [(row["name"], row) for row in rows]
    by_shard = [(str(shard["shard"]), shard) for shard in shards]
    for names, family, key, found in (
        (COUNTERS, CounterMetricFamily, "stream", by_stream),
        (GAUGES, GaugeMetricFamily, "stream", by_stream),
        (SHARD_COUNTERS, CounterMetricFamily, "shard", by_shard),
        (SHARD_GAUGES, GaugeMetricFamily, "shard", by_shard),
    ):
        for field, (name, text) in names.items():
            values = family(f"fretta_{name}", text, labels=[key])
            for label, row in found:
                if row.get(field) is not None:
                    values.add_metric([label], float(row[field]))
            yield values
    actions = CounterMetricFamily(
        "fretta_guard_actions", "What the guard did.", labels=["stream", "action"]
    )
    for row in rows:
        for action, count in row["actions"].items():
            actions.add_metric([row["name"], action], count)
    yield actions
    times = HistogramMetricFamily(
        "fretta_latency_seconds", "From the arrival of an image to its answer.", labels=["stream"]
    )
    for shard in shards:
        for name, (counts, total) in shard["latencies"].items():
            below, buckets = 0, []
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                below += count
                buckets.append((bound, below))
            times.add_metric([name], buckets, total)
    yield times
