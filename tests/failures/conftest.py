"""The application over an in-process client, as the tests of the API have it."""

from tests.api.conftest import api, client

__all__ = ["api", "client"]
