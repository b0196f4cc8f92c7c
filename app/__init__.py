"""Foldline: a context compiler for LLM agents."""

__version__ = "0.1.0"
