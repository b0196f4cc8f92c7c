"""What models take, cache and cost: a dated data file, and the reading of it."""
