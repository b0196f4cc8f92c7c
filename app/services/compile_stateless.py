"""Compile a list of events that is stored nowhere: the same steps, with a log in memory."""

from app.core.canonical import Json
from app.core.errors import InvalidInputError
from app.core.resolve import Facts, Log, Resolver
from app.core.session_state import evolve
from app.ports import Clock, Meter
from app.services.append_events import fresh_events
from app.services.compile_context import CompileContext
from app.services.compile_outcomes import counting_refusals
from app.services.compiled import Compiled, CompileRequest
from app.services.prepare_events import EventPreparer, Note, SentBatch


class CompileStateless:
    """Appends to a log in memory, and compiles that."""

    def __init__(
        self,
        *,
        preparer: EventPreparer,
        compile_context: CompileContext,
        clock: Clock,
        meter: Meter,
    ) -> None:
        self._preparer = preparer
        self._compile = compile_context
        self._clock = clock
        self._meter = meter

    async def __call__(
        self, batch: SentBatch, request: CompileRequest
    ) -> tuple[Compiled, list[Note]]:
        """Compile the events of a batch.

        Raises:
            InvalidInputError: an event is refused, with a pointer to it.
        """
        prepared, notes = await self._preparer.prepare(batch, now=self._clock.now())
        resolver = Resolver(Facts())
        events = []
        state: dict[str, Json] = {}
        for each in fresh_events(prepared, {}):
            try:
                events.append(resolver.add(each.event))
            except InvalidInputError as error:
                error.pointer = each.pointer_of(error.pointer)
                raise
            state = evolve(state, each.state_delta)
        log = Log(tuple(events), resolver.facts.index)
        with counting_refusals(self._meter):
            return await self._compile.stateless(log, request, state), notes
