"""What a request's input costs, by the dated prices of the model rules."""

from app.core.model_rules import PRICE_UNIT, ModelRule, Prices, Ttl


def input_price(
    rule: ModelRule, tokens: int, *, cached_tokens: int = 0, ttl: Ttl = "5m"
) -> float | None:
    """Return the price of a request's input in the rules' currency; None when none is known.

    What the provider has in its cache is read from there, the rest is read anew and, where the
    provider charges for it, written to the cache.

    Args:
        rule: of the model.
        tokens: of the whole request, by the model's count.
        cached_tokens: of the beginning that the provider should have; below its minimum it has
            none.
        ttl: how long what is written is kept.
    """
    prices = rule.prices_of(tokens)
    if prices is None:
        return None
    hit = min(tokens, cached_tokens) if cached_tokens >= rule.cache.min_tokens else 0
    read = prices.input if prices.cached_read is None else prices.cached_read
    return (hit * read + (tokens - hit) * _written(prices, ttl)) / PRICE_UNIT


def _written(prices: Prices, ttl: Ttl) -> float:
    price = prices.write_1h if ttl == "1h" else prices.write_5m
    return prices.input if price is None else price
