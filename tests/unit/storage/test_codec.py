"""Rows and back: nothing that a compile reads is lost."""

from hypothesis import given
from hypothesis import strategies as st

from app.core.contents import (
    CodeExecutionResult,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    InlineData,
    Opaque,
    Part,
    Text,
)
from app.core.copying import replace
from app.core.events import (
    Activation,
    CacheMetadata,
    Elision,
    Event,
    Fold,
    Marker,
    Owner,
    Pin,
    Place,
    PolicyChange,
    Rewind,
    Section,
    Undo,
    Unpin,
)
from app.core.index import Elided, Index, ShownSection
from app.core.lanes import Lane
from app.core.ranges import FOREVER, Ranges, union
from app.core.resolve import ReplyFacts
from app.storage import codec

# What is stored is clean: no NUL and no lone surrogate, which is the parsers' job.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
SEQ = st.integers(1, 2**53)
JSON_TEXT = st.one_of(
    TEXT.map(lambda said: f'{{"a":"{said.encode("unicode_escape").decode()}"}}'),
    st.just('{"n":123456789012345678901234567890,"f":1.50}'),
    st.just("{}"),
)
OPTIONAL = st.none() | TEXT
BASE = {"thought": st.booleans(), "signature": OPTIONAL, "signed_by": OPTIONAL, "extra": OPTIONAL}
MEDIA = st.one_of(
    st.builds(InlineData, mime_type=TEXT, data=TEXT, display_name=OPTIONAL, **BASE),
    st.builds(FileData, file_uri=TEXT, mime_type=OPTIONAL, display_name=OPTIONAL, **BASE),
)
PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, text=TEXT, **BASE),
    st.builds(
        FunctionCall,
        id=OPTIONAL,
        name=TEXT,
        args=JSON_TEXT,
        args_text=OPTIONAL,
        long_running=st.booleans(),
        **BASE,
    ),
    st.builds(
        FunctionResponse,
        id=OPTIONAL,
        name=TEXT,
        response=JSON_TEXT,
        response_text=OPTIONAL,
        is_error=st.booleans(),
        media=st.lists(MEDIA, max_size=2).map(tuple),
        **BASE,
    ),
    MEDIA,
    st.builds(ExecutableCode, code=TEXT, language=TEXT, **BASE),
    st.builds(CodeExecutionResult, outcome=TEXT, output=TEXT, **BASE),
    st.builds(Opaque, provider=TEXT, type=TEXT, raw=JSON_TEXT, text=TEXT, **BASE),
)
LANES = st.builds(
    Lane,
    isolation_scope=OPTIONAL,
    branch=TEXT,
    tool_names=st.lists(TEXT, max_size=2).map(tuple),
    node_path=TEXT,
)
RANGES: st.SearchStrategy[Ranges] = st.lists(
    st.tuples(st.integers(1, 50), st.integers(1, 50) | st.just(FOREVER)), max_size=4
).map(union)
CACHES = st.builds(
    CacheMetadata,
    fingerprint=TEXT,
    contents_count=SEQ,
    cache_name=OPTIONAL,
    expire_time=st.none() | st.floats(0, 2**40),
    created_at=st.none() | st.floats(0, 2**40),
    invocations_used=st.none() | SEQ,
)
PLACES = st.builds(Place, SEQ, SEQ, SEQ)
MARKERS: st.SearchStrategy[Marker] = st.one_of(
    st.builds(
        Fold,
        from_seq=SEQ,
        to_seq=SEQ,
        sections=st.lists(
            st.builds(
                Section,
                lane=LANES,
                covers=RANGES,
                parts=st.lists(PARTS, max_size=2).map(tuple),
                tokens=SEQ,
                role=TEXT,
            ),
            max_size=2,
        ).map(tuple),
        level=SEQ,
        is_staged=st.booleans(),
        start_timestamp=st.none() | st.floats(allow_nan=False),
        end_timestamp=st.none() | st.floats(allow_nan=False),
    ),
    st.builds(Rewind, SEQ),
    st.builds(Pin, RANGES),
    st.builds(Unpin, RANGES),
    st.builds(Elision, RANGES, SEQ),
    st.builds(Undo, SEQ),
    st.builds(Activation, SEQ),
    st.just(PolicyChange()),
)
EVENTS = st.builds(
    Event,
    seq=SEQ,
    id=TEXT,
    author=TEXT,
    invocation_id=TEXT,
    timestamp=st.floats(allow_nan=False),
    lane=LANES,
    node_path=TEXT,
    role=OPTIONAL,
    parts=st.lists(PARTS, max_size=3).map(tuple),
    part_tokens=st.lists(st.integers(0, 10**6), max_size=3).map(tuple),
    input_transcription=OPTIONAL,
    output_transcription=OPTIONAL,
    long_running_ids=st.frozensets(TEXT, max_size=2),
    requested_ids=st.frozensets(TEXT, max_size=2),
    is_transfer=st.booleans(),
    is_live_session=st.booleans(),
    skips_summarization=st.booleans(),
    error_code=OPTIONAL,
    prompt_tokens=st.none() | SEQ,
    cache_metadata=st.none() | CACHES,
    compiled_seq=st.none() | SEQ,
    compiled_fingerprint=OPTIONAL,
    response_id=OPTIONAL,
    place=st.none() | PLACES,
    owners=st.lists(st.none() | st.builds(Owner, SEQ, SEQ, TEXT, TEXT, LANES), max_size=2).map(
        tuple
    ),
    marker=st.none() | MARKERS,
)
#: What an event has before it is appended, or while it is compiled, and no row keeps.
NOT_STORED = {"request", "kept_parts", "segment", "notes"}


def row_of(event: Event) -> dict[str, object]:
    return {
        "seq": event.seq,
        "id": event.id,
        "author": event.author,
        "invocation_id": event.invocation_id,
        "event_at": event.timestamp,
        "derived": codec.pack_derived(event),
        "derived_version": codec.DERIVED_VERSION,
        "resolved": codec.pack_resolved(event),
        "requested_ids": codec.pack_ids(event.requested_ids),
        "marker": None if event.marker is None else codec.pack_marker(event.marker),
    }


@given(event=EVENTS)
def test_an_event_survives_its_row(event: Event) -> None:
    assert codec.unpack_event(row_of(event), event.lane) == event


def test_every_field_of_an_event_is_stored_or_known_not_to_be() -> None:
    drawn = {
        "seq", "id", "author", "invocation_id", "timestamp", "lane", "node_path", "role", "parts",
        "part_tokens", "input_transcription", "output_transcription", "long_running_ids",
        "requested_ids", "is_transfer", "is_live_session", "skips_summarization", "error_code",
        "prompt_tokens", "cache_metadata",
        "compiled_seq", "compiled_fingerprint", "response_id", "place", "owners", "marker",
    }  # fmt: skip
    assert set(Event.__struct_fields__) == drawn | NOT_STORED


@given(owner_lane=LANES, event=EVENTS)
def test_an_owner_in_the_lane_of_its_response_does_not_repeat_it(
    owner_lane: Lane, event: Event
) -> None:
    same = replace(event, lane=owner_lane, owners=(Owner(1, 0, "a", "t", owner_lane),))
    packed = codec.pack_resolved(same)

    assert packed is not None
    assert packed.endswith('[[1,0,"a","t",null]]]')
    assert codec.unpack_resolved(packed, owner_lane) == (same.place, same.owners)


@given(
    index=st.builds(
        Index,
        live=RANGES,
        rewound=RANGES,
        pinned=RANGES,
        sections=st.lists(
            st.builds(ShownSection, SEQ, st.integers(0, 3), LANES, RANGES), max_size=2
        ).map(tuple),
        elided=st.lists(st.builds(Elided, SEQ, RANGES, SEQ), max_size=2).map(tuple),
        staged=st.lists(SEQ, max_size=2).map(tuple),
    )
)
def test_an_index_survives_its_columns(index: Index) -> None:
    live, rewound = map(codec.pack_multirange, (index.live, index.rewound))

    assert codec.unpack_index(codec.pack_index(index), live, rewound) == index


def test_an_index_of_before_elisions_is_read() -> None:
    index = Index(pinned=((2, 3),))
    assert codec.pack_index(index) == "[[[2,3]],[]]"
    assert codec.unpack_index("[[[2,3]],[]]", "{[1,)}", "{}") == index


def test_an_index_of_before_counts_is_read_and_reads_what_has_them() -> None:
    shown = ShownSection(9, 0, Lane(), ((1, 4), (6, 8)), count=7)
    before = '[[],[[9,0,[null,"",[],""],[[1,4],[6,8]]]],[],[]'

    packed = codec.pack_index(Index(sections=(shown,)))

    # Older code takes the first four fields, and sections of four.
    assert packed == f"{before},[7]]"
    for text in (packed, f"{before}]"):
        assert codec.unpack_index(text, "{}", "{}").sections == (shown,)


def test_a_log_without_markers_has_no_index_column() -> None:
    assert codec.unpack_index(None, "{[1,)}", "{}") == Index()


@given(
    replies=st.dictionaries(
        TEXT, st.builds(ReplyFacts, SEQ, PLACES, TEXT, OPTIONAL, st.none() | SEQ), max_size=3
    )
)
def test_replies_survive_their_column(replies: dict[str, ReplyFacts]) -> None:
    assert codec.unpack_replies(codec.pack_replies(replies)) == replies
