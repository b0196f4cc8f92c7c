"""The system's clock: the only place that reads the time."""

from datetime import UTC, datetime


class SystemClock:
    """The machine's time, aware, in UTC."""

    def now(self) -> datetime:
        """Return the current time."""
        return datetime.now(UTC)
