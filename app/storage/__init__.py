"""Postgres: the only place with SQL."""
