"""What became of compiles that have no answer."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.core.errors import BudgetExceededError, PipelineError, StorageError
from app.ports import Meter


@contextmanager
def counting_refusals(meter: Meter) -> Iterator[None]:
    """Count a compile that the block does not bring to an answer; a wrong request is none."""
    try:
        yield
    except BudgetExceededError:
        meter.compile_refused("over_budget")
        raise
    except PipelineError:
        meter.compile_refused("unrepairable")
        raise
    except StorageError:
        meter.compile_refused("error")
        raise
