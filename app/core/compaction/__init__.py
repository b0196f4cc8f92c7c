"""Folding history: what to fold (the planner), and what to say of it (the summarizers)."""
