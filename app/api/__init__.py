"""The HTTP edge: parse, call one service, map, return."""
