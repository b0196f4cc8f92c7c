"""A model that writes summaries, with somebody who is told what it takes."""

import time
from collections.abc import Mapping

from app.ports import Meter, SummaryAnswer, SummaryPrompt, SummaryProvider


class MeasuredProvider:
    """A :class:`app.ports.SummaryProvider` around another one."""

    def __init__(
        self, provider: SummaryProvider, *, kind: str, model: str | None, meter: Meter
    ) -> None:
        """Take the provider, its kind, and the model of prompts that name none."""
        self._provider = provider
        self._kind = kind
        self._model = model or ""
        self._meter = meter

    async def complete(self, prompt: SummaryPrompt) -> SummaryAnswer:
        """Ask once, as the provider does."""
        started_s = time.perf_counter()
        answer: SummaryAnswer | None = None
        failure: BaseException | None = None
        try:
            answer = await self._provider.complete(prompt)
        except BaseException as error:
            # A request that is broken off, for want of time or of its worker, was made as well.
            failure = error
            raise
        finally:
            self._meter.summarized(
                self._kind,
                prompt.model or self._model,
                failure,
                duration_s=time.perf_counter() - started_s,
                input_tokens=answer.input_tokens if answer else 0,
                output_tokens=answer.output_tokens if answer else 0,
            )
        return answer


def measured(
    providers: Mapping[str, SummaryProvider], *, model: str | None, meter: Meter
) -> Mapping[str, SummaryProvider]:
    """Return providers by kind, each with somebody who is told what it takes."""
    return {
        kind: MeasuredProvider(provider, kind=kind, model=model, meter=meter)
        for kind, provider in providers.items()
    }
