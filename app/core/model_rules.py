"""What is known of a model: its window, how it counts, what its cache takes, what it costs.

The numbers are data (``app/formats/rules``) and reach the core as values; here is only their shape
and how a model's name finds its rule. Of a rule of which nothing is said, nothing is assumed: None.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar

from app.core.canonical import Json, canonical_json

#: ``markers`` are put into the request, four at most; ``breakpoints`` are too, beside one that the
#: provider sets itself; ``automatic`` needs nothing; ``explicit`` caches are made by a request of
#: their own.
CacheKind: TypeAlias = Literal["markers", "breakpoints", "automatic", "explicit", "none"]
#: ``area``: pixels over a number; ``tiles``: a base and so much for each tile; ``flat``: the base.
ImageRuleKind: TypeAlias = Literal["area", "tiles", "flat"]
Ttl: TypeAlias = Literal["5m", "1h"]

T = TypeVar("T")

#: Per so many tokens prices are given.
PRICE_UNIT: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of a million tokens."""

    input: float
    output: float
    #: Input that the provider had in its cache; None: as other input.
    cached_read: float | None = None
    #: Input that is written to the cache, by how long it is kept; None: as other input.
    write_5m: float | None = None
    write_1h: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceStep:
    """Other prices for whole requests above a size."""

    above_tokens: int
    prices: Prices


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRule:
    """What the provider caches, and what has to be said for it."""

    kind: CacheKind = "none"
    #: A shorter prefix is not cached, silently.
    min_tokens: int = 0
    max_markers: int = 0
    #: A marker finds an entry that ends at most so many blocks before it; 0: no such limit.
    lookback_blocks: int = 0
    #: How long an entry lives after its last use, in seconds, by name.
    ttls_s: Mapping[str, int] = field(default_factory=dict)
    #: Markers are taken behind tools too.
    marks_tools: bool = True
    #: Requests with one ``prompt_cache_key`` are sent to one cache.
    has_key: bool = False
    #: Explicit caches: how long one lives and how many invocations it serves unless the caller says
    #: otherwise; 0: not known.
    explicit_ttl_s: int = 0
    explicit_intervals: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRule:
    """How many tokens an image takes."""

    rule: ImageRuleKind = "flat"
    base_tokens: int = 0
    #: The longer edge is scaled down to this, then the shorter one to that; 0: no limit.
    max_edge: int = 0
    short_edge: int = 0
    pixels_per_token: int = 0
    max_tokens: int = 0
    tile_tokens: int = 0
    tile_edge: int = 0
    #: An image with no longer edge is one tile, whatever the tiles' size.
    one_tile_edge: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRule:
    """How many tokens media take; None: our own rough rule."""

    image: ImageRule | None = None
    page_tokens: int | None = None
    audio_tokens_per_s: int | None = None
    video_tokens_per_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerRule:
    """How the model's tokens relate to ours."""

    #: The model's tokens for a hundred of ours, before anything is learnt.
    percent: int = 100
    #: By how much a count may be off then.
    error_percent: int = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRule:
    """One family of models."""

    family: str
    provider: str
    #: What names of its models begin with.
    match: tuple[str, ...] = ()
    #: It is for names that no other rule knows, and says little.
    is_fallback: bool = False
    #: Tokens of input and output together; None: not known.
    window_tokens: int | None = None
    #: Of the window, what is left for the answer unless the caller says otherwise.
    output_reserve_tokens: int = 0
    tokenizer: TokenizerRule = TokenizerRule()
    #: Reasoning is valid only after the very prefix that it was produced on.
    is_reasoning_bound: bool = False
    #: A request may not end in the assistant's turn.
    refuses_prefill: bool = False
    #: A call of the current turn without a signature is refused.
    needs_call_signatures: bool = False
    cache: CacheRule = CacheRule()
    media: MediaRule = MediaRule()
    prices: Prices | None = None
    price_step: PriceStep | None = None
    #: The rule as JSON, for the record of what a compile went by.
    text: str = field(default="", compare=False, repr=False)

    def budget_tokens(self, reserve_tokens: int | None = None) -> int | None:
        """Return the tokens of a request when the caller sets no budget; None: no limit is known.

        Args:
            reserve_tokens: what is left for the answer; None: the most that the model answers.
        """
        if self.window_tokens is None:
            return None
        reserve = self.output_reserve_tokens if reserve_tokens is None else reserve_tokens
        return max(1, self.window_tokens - reserve)

    def prices_of(self, input_tokens: int) -> Prices | None:
        """Return the prices of a request of this size; None when none are known."""
        step = self.price_step
        return step.prices if step and input_tokens > step.above_tokens else self.prices


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRules:
    """All rules, as of a date."""

    date: str
    currency: str
    rules: tuple[ModelRule, ...]

    def find(self, model: str) -> ModelRule | None:
        """Return the rule for a model's name, in the spelling of any provider or router.

        The longest beginning wins, so that one with Bedrock's word for the maker is for Bedrock
        alone. A version or a size that no rule names is another model: it gets the rule for unknown
        ones of its maker, or none.
        """
        known: list[tuple[bool, int, ModelRule]] = [
            (not rule.is_fallback, len(beginning), rule)
            for name in _spellings(model)
            for rule in self.rules
            for beginning in rule.match
            if (name.startswith(beginning) if rule.is_fallback else _is_named(name, beginning))
        ]
        return max(known, key=lambda found: found[:2])[2] if known else None


#: No rule for any model.
NO_RULES: Final = ModelRules(date="", currency="USD", rules=())

#: Bedrock's regions and makers stand before the name, behind dots.
_VENDOR: Final = re.compile(
    r"^(?:(?:us|eu|apac|jp|au|ca|global|us-gov)\.)?((?:anthropic|amazon|openai|google)\.)"
)
#: What may follow a name without making it another model: a date, a channel, a revision.
_SUFFIX: Final = re.compile(
    r"(?:[-@:](?:\d{3}|\d{4,8}|\d{4}-\d{2}-\d{2}|\d{2}-\d{2,4}|v\d[\w.:-]*|latest|preview|exp|beta"
    r"|customtools|thinking|codex|max|free|fast))*"
)


def plain_name(model: str) -> str:
    """Return a model's name without paths, regions and makers, versions behind hyphens."""
    name = _VENDOR.sub("", _last_of_path(model))
    return name.replace(".", "-") if name.startswith("claude") else name


def _spellings(model: str) -> Iterable[str]:
    """Yield a model's plain name, and with Bedrock's word for the maker where it has one."""
    name = plain_name(model)
    yield name
    if vendor := _VENDOR.match(_last_of_path(model)):
        yield f"{vendor[1]}{name}"


def _last_of_path(model: str) -> str:
    return model.strip().lower().rpartition("/")[2]


def _is_named(name: str, beginning: str) -> bool:
    return name.startswith(beginning) and bool(_SUFFIX.fullmatch(name, len(beginning)))


def rule_of(values: Mapping[str, Any]) -> ModelRule:
    """Return the rule of a flat JSON object, as :attr:`ModelRule.text` holds it.

    Raises:
        ValueError: a key is unknown.
        TypeError: a key is missing.
    """
    fields = dict(values)
    nested: dict[str, Any] = {}
    kinds: tuple[tuple[str, type[object]], ...] = (
        ("tokenizer", TokenizerRule),
        ("cache", CacheRule),
        ("prices", Prices),
    )
    for key, kind in kinds:
        if key in fields:
            nested[key] = _made(kind, fields.pop(key))
    if (media := fields.pop("media", None)) is not None:
        image = media.get("image")
        made = None if image is None else _made(ImageRule, image)
        nested["media"] = _made(MediaRule, {**media, "image": made})
    if (step := fields.pop("price_step", None)) is not None:
        nested["price_step"] = _made(PriceStep, {**step, "prices": _made(Prices, step["prices"])})
    fields["match"] = tuple(fields.get("match", ()))
    text = canonical_json(dict(values))
    return _made(ModelRule, {**fields, **nested, "text": text})


def rule_from_text(text: str) -> ModelRule:
    """Return the rule that :attr:`ModelRule.text` says."""
    values: Json = json.loads(text)
    assert isinstance(values, dict)
    return rule_of(values)


def _made(kind: type[T], values: Mapping[str, Any]) -> T:
    unknown = values.keys() - kind.__annotations__.keys()
    if unknown:
        raise ValueError(f"unknown key {min(unknown)}")
    return kind(**values)
