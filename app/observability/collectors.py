"""The two kinds of metric that prometheus-client's own do not fit."""

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector


class LoopHistogram(Collector):
    """A histogram with one label that only the event loop's thread writes to.

    A compile has some twenty stages. prometheus-client takes a lock for every observation, which
    makes it 2 microseconds; without one it is a quarter of that. Whoever reads from another thread
    may miss what is being added just then.
    """

    def __init__(self, name: str, documentation: str, label: str, bounds: Sequence[float]) -> None:
        self._name, self._documentation, self._label = name, documentation, label
        self._bounds: Final = tuple(bounds)
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe_all(self, seconds_by_value: Iterable[tuple[str, float]]) -> None:
        """Observe once for each value of the label."""
        for value, seconds in seconds_by_value:
            counts = self._counts.get(value)
            if counts is None:
                counts = self._counts[value] = [0] * (len(self._bounds) + 1)
                self._sums[value] = 0.0
            counts[bisect_left(self._bounds, seconds)] += 1
            self._sums[value] += seconds

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Give the family as it stands."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        bounds = [*map(str, map(float, self._bounds)), "+Inf"]
        for value, counts in list(self._counts.items()):
            buckets = list(zip(bounds, map(float, accumulate(counts)), strict=True))
            family.add_metric([value], buckets=buckets, sum_value=self._sums[value])
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
