"""The command with a clock that is off by what a file says: `python -m tests.faults.set_back`.

The clock of `app.providers` is the only one that tells what day it is; the linter keeps it so.
"""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from app.cli.__main__ import main
from app.providers.clock import SystemClock

#: Names the file, which holds seconds.
FILE: Final = "TEST_CLOCK_OFFSET_FILE"


def _now(_: SystemClock) -> datetime:
    offset_s = float(Path(os.environ[FILE]).read_text(encoding="utf-8"))
    return datetime.now(UTC) + timedelta(seconds=offset_s)


if __name__ == "__main__":
    SystemClock.now = _now  # type: ignore[assignment, method-assign]
    sys.exit(main())
