"""Use cases: one per file. They own the transaction and speak to ports."""
