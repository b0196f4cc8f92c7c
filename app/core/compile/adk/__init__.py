"""Rules of google-adk 2.13 that our passes follow (``spec/ADK.md`` B), one a module."""
