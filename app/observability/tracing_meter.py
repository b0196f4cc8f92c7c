"""The meter of a process that sends traces: what it is told becomes spans too."""

from collections.abc import Mapping
from typing import Any, Final

from app.core.compile.inputs import CompileResult
from app.core.model_rules import ModelRules
from app.observability.meter import OTHER, Meter
from app.observability.metrics import Metrics
from app.observability.tracing import Tracer

#: As the conventions call them:
#: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/ (2026-11-30)
PROVIDER_NAMES: Final[Mapping[str, str]] = {
    "openai_responses": "openai",
    "gemini": "gcp.gemini",
}


class TracingMeter(Meter):
    """Counts, and tells the tracer."""

    def __init__(
        self,
        metrics: Metrics,
        rules: ModelRules,
        query_names: Mapping[str, str],
        *,
        tracer: Tracer,
    ) -> None:
        super().__init__(metrics, rules, query_names)
        self._tracer = tracer

    def compiled(
        self,
        result: CompileResult,
        *,
        wire_format: str,
        timing_ms: Mapping[str, float],
        scanned: int,
        tokens_by_segment: Mapping[str, int],
        **figures: Any,  # noqa: ANN401  as the meter takes them
    ) -> None:
        super().compiled(
            result,
            wire_format=wire_format,
            timing_ms=timing_ms,
            scanned=scanned,
            tokens_by_segment=tokens_by_segment,
            **figures,
        )
        stages_s = {stage: spent / 1000 for stage, spent in timing_ms.items()}
        self._tracer.add(
            "compile",
            duration_s=sum(stages_s.values()),
            attributes={
                "foldline.format": wire_format,
                "foldline.events_scanned": scanned,
                "foldline.tokens": sum(tokens_by_segment.values()),
                "foldline.fingerprint": result.fingerprint,
            },
            stages_s=stages_s,
        )

    def query_ran(self, sql: str, *, duration_s: float) -> None:
        super().query_ran(sql, duration_s=duration_s)
        name = self._query_names.get(sql, OTHER)
        attributes = {"db.system.name": "postgresql", "db.query.summary": name}
        self._tracer.add(name, duration_s=duration_s, kind="client", attributes=attributes)

    def summarized(
        self,
        provider: str,
        model: str,
        error: BaseException | None,
        *,
        duration_s: float,
        input_tokens: int = 0,
        output_tokens: int = 0,
    ) -> None:
        super().summarized(
            provider,
            model,
            error,
            duration_s=duration_s,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDER_NAMES.get(provider, provider),
            "gen_ai.request.model": model,
        }
        if error is None:
            attributes["gen_ai.usage.input_tokens"] = input_tokens
            attributes["gen_ai.usage.output_tokens"] = output_tokens
        else:
            attributes["error.type"] = type(error).__name__
        self._tracer.add(
            f"chat {model}",
            duration_s=duration_s,
            kind="client",
            attributes=attributes,
            is_error=error is not None,
        )

    def job_ended(self, queue: str, outcome: str, *, waited_s: float, ran_s: float) -> None:
        super().job_ended(queue, outcome, waited_s=waited_s, ran_s=ran_s)
        attributes: dict[str, str | float] = {
            "foldline.outcome": outcome,
            "foldline.waited_s": waited_s,
        }
        self._tracer.job_ended(f"job {queue}", duration_s=ran_s, attributes=attributes)
