"""Background work: the loop that claims jobs, and what does each kind of them."""
