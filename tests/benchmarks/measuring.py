"""Percentiles, the machine, and the table of a run."""

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that is not below this share of them."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Stopwatch:
    """Collects durations in milliseconds."""

    def __init__(self) -> None:
        self.samples_ms: list[float] = []
        self._started_at = 0.0

    def __enter__(self) -> Self:
        self._started_at = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.samples_ms.append((time.perf_counter() - self._started_at) * 1000)


_CPU_INFO: Final = Path("/proc/cpuinfo")


def machine() -> dict[str, str]:
    """Return what the figures were measured on."""
    models = [
        line.partition(":")[2].strip()
        for line in (_CPU_INFO.read_text().splitlines() if _CPU_INFO.exists() else ())
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_before": f"{os.getloadavg()[0]:.1f}",
    }


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows in columns, figures on the right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in (header, *rows)
    )
