"""The kinds of metric that prometheus-client's own do not fit."""

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector


class Count:
    """One series of a counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Count so much more."""
        self.value += amount


class Distribution:
    """One series of a histogram."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        #: By bucket, of this bucket alone; the last is of what is above all bounds.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, amount: float) -> None:
        """Take a value."""
        self.counts[bisect_left(self._bounds, amount)] += 1
        self.total += amount


class LoopCounter(Collector):
    """A counter that only the event loop's thread writes to.

    A compile counts some fifty things. prometheus-client takes a lock for each, which makes it one
    or two microseconds; without one it is a tenth of that. Whoever reads from another thread may
    miss what is being added just then.
    """

    def __init__(self, name: str, documentation: str, labels: Sequence[str]) -> None:
        self._name, self._documentation, self._labels = name, documentation, tuple(labels)
        self._series: dict[tuple[str, ...], Count] = {}

    def labels(self, *values: str) -> Count:
        """Return the series of these values; keep it, looking it up costs more than counting."""
        return self._series.setdefault(values, Count())

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Give the family as it stands."""
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, count in list(self._series.items()):
            family.add_metric(values, count.value)
        yield family


class LoopHistogram(Collector):
    """A histogram that only the event loop's thread writes to; as the counter."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        self._name, self._documentation, self._labels = name, documentation, tuple(labels)
        self._bounds: Final = tuple(map(float, bounds))
        self._series: dict[tuple[str, ...], Distribution] = {}

    def labels(self, *values: str) -> Distribution:
        """Return the series of these values; keep it."""
        return self._series.setdefault(values, Distribution(self._bounds))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Give the family as it stands."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        names = [*map(str, self._bounds), "+Inf"]
        for values, series in list(self._series.items()):
            counts = [*map(float, accumulate(series.counts))]
            buckets = list(zip(names, counts, strict=True))
            is_signed = self._bounds[0] < 0
            family.add_metric(values, buckets, None if is_signed else series.total)
            if is_signed:
                # OpenMetrics has no sum where a value may be below zero, and the library then
                # leaves out the count too.
                labels = dict(zip(self._labels, values, strict=True))
                family.add_sample(f"{self._name}_count", labels, counts[-1])
        yield family


class ElectedGauges(Collector):
    """Gauges that tell of the whole database: only there while this process is the one to say so.

    Did every replica say the same number, whoever sums up would see it many times.
    """

    def __init__(self, gauges: Mapping[str, tuple[str, str, Sequence[str]]]) -> None:
        """Take the gauges: by name without the prefix, whole name, meaning and labels."""
        self._gauges: Final = dict(gauges)
        self._values: Mapping[str, Mapping[tuple[str, ...], float]] = {}
        self._until_s = 0.0

    def set(self, values: Mapping[str, Mapping[tuple[str, ...], float]], *, valid_s: float) -> None:
        """Say these values, by name and labels, for at most so long."""
        self._values = values
        self._until_s = time.monotonic() + valid_s

    def clear(self) -> None:
        """Say nothing: another process does."""
        self._until_s = 0.0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give the families, none when they are another's to give."""
        if time.monotonic() >= self._until_s:
            return
        for key, by_labels in self._values.items():
            name, documentation, labels = self._gauges[key]
            family = GaugeMetricFamily(name, documentation, labels=labels)
            for label_values, value in by_labels.items():
                family.add_metric(label_values, value)
            yield family
