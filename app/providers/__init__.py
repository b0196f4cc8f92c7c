"""The outside world: clocks, model providers, blobs."""
